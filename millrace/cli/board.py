"""Shows files on their way, on standard error: bars on a terminal, else a line per change of state and every few seconds."""

import sys
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millrace.cli.printing import printable
from millrace.cli.tracks import Track

SHOWN_FILES = 12
SECONDS_BETWEEN_LINES = 5.0
_BAR_WIDTH = 16


class Board(Protocol):
    interval: float
    """Seconds between two looks at the platform."""

    def show(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def board_for(tracks: list[Track], *, quiet: bool) -> Board:
    """Bars where somebody looks; with `quiet` nothing instead of lines."""
    return Bars(tracks) if sys.stderr.isatty() else Lines(tracks, quiet=quiet)


class Bars:
    """One row a file: how much is sent, judged and durable."""

    interval = 0.4

    def __init__(self, tracks: list[Track], console: Console | None = None) -> None:
        self._tracks = tracks
        self._live = Live(self._table(), console=console or Console(stderr=True), refresh_per_second=8, transient=True)

    def show(self) -> None:
        self._live.update(self._table())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show()
        self._live.stop()

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for header in ("", "sent", "judged", "durable", "rows", "rejected", "state"):
            table.add_column(header, justify="right" if header in ("rows", "rejected") else "left", no_wrap=True)
        running = [track for track in self._tracks if not track.is_over]
        over = [track for track in self._tracks if track.is_over]
        hidden = max(0, len(self._tracks) - SHOWN_FILES)
        shown = (running + over[::-1])[:SHOWN_FILES]
        for track in sorted(shown, key=self._tracks.index):
            table.add_row(*_bars(track))
        if hidden:
            table.add_row(Text(f"… {hidden} more, {len(over)} of {len(self._tracks)} over", style="dim"))
        return table


def _bars(track: Track) -> list[Text | ProgressBar]:
    rows = track.document["rows"] if track.document else None
    name = track.name if len(track.name) <= 40 else "…" + track.name[-39:]
    style = {"completed": "green", "failed": "red", "cancelled": "red", "stalled": "yellow"}.get(track.state, "cyan")
    return [
        Text(printable(name)),
        *(ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH) for share in track.shares()),
        Text(f"{rows['read']:,}" if rows else ""),
        Text(f"{rows['rejected']:,}" if rows else ""),
        Text(track.state, style=style),
    ]


class Lines:
    """For logs: says what changed, and now and then that it is alive."""

    interval = 1.0

    def __init__(self, tracks: list[Track], *, quiet: bool) -> None:
        self._tracks = tracks
        self._quiet = quiet
        self._said: dict[str, tuple[str, float]] = {}

    def show(self) -> None:
        for track in [] if self._quiet else self._tracks:
            state, at = self._said.get(track.name, ("waiting", time.monotonic()))
            due = time.monotonic() - at >= SECONDS_BETWEEN_LINES and not track.is_over
            if track.state != state or due:
                print(_line(track), file=sys.stderr, flush=True)
                at = time.monotonic()
            self._said[track.name] = (track.state, at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show()


def _line(track: Track) -> str:
    sent, judged, durable = (f"{share:.0%}" for share in track.shares())
    return printable(
        f"{track.import_id or '-'} {track.name}: {track.state}; sent {sent}, judged {judged}, durable {durable}"
    )
