"""Progress bars on a terminal. Apart from board.py, because rich takes long to import."""

from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millrace.cli.printing import printable
from millrace.cli.tracks import Track

SHOWN_FILES = 12
SHOWN_WAITS = 3
_BAR_WIDTH = 16


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

    def __exit__(self, *_: object) -> None:
        self.show()
        self._live.stop()

    def _table(self) -> Group:
        """The bars, and below them what imports wait for."""
        waiting = [f"{track.import_id} {track.waits_for}" for track in self._tracks if track.waits_for]
        return Group(self._bars(), *(Text(printable(line), style="yellow") for line in waiting[:SHOWN_WAITS]))

    def _bars(self) -> Table:
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
