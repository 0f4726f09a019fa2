"""Shows the progress of files on standard error: bars on a terminal, else lines."""

import sys
import time
from typing import TYPE_CHECKING, Self, Union

from millrace.cli.printing import printable
from millrace.cli.tracks import Track

if TYPE_CHECKING:
    from millrace.cli.bars import Bars

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_WAITS = 60.0
Board = Union["Lines", "Bars"]


def board_for(tracks: list[Track], *, quiet: bool) -> "Board":
    """Bars on a terminal; elsewhere lines, or with `quiet` nothing."""
    if not sys.stderr.isatty():
        return Lines(tracks, quiet=quiet)
    from millrace.cli.bars import Bars  # noqa: PLC0415

    return Bars(tracks)


class Lines:
    """For logs: a line for each change of state, and every few seconds while nothing changes. What an import waits for is
    told when it begins to, and then again once a minute.

    `interval`: seconds between two looks at the platform."""

    interval = 1.0

    def __init__(self, tracks: list[Track], *, quiet: bool) -> None:
        self._tracks = tracks
        self._quiet = quiet
        self._shown: dict[str, tuple[str, float]] = {}
        self._told: dict[str, tuple[str, float]] = {}

    def show(self) -> None:
        for track in [] if self._quiet else self._tracks:
            state, at = self._shown.get(track.name, ("waiting", time.monotonic()))
            due = time.monotonic() - at >= SECONDS_BETWEEN_LINES and not track.is_over
            if track.state != state or due:
                print(_line(track), file=sys.stderr, flush=True)
                at = time.monotonic()
            self._shown[track.name] = (track.state, at)
            self._tell_waiting(track)

    def _tell_waiting(self, track: Track) -> None:
        waiting = track.document.get("waiting_for") if track.document is not None else None
        if waiting is None:
            self._told.pop(track.name, None)
            return
        cause = f"{waiting['kind']} {waiting.get('sink')}"
        known, at = self._told.get(track.name, ("", 0.0))
        if cause != known or time.monotonic() - at >= SECONDS_BETWEEN_WAITS:
            self._told[track.name] = cause, time.monotonic()
            print(printable(f"{track.import_id or '-'} {track.name}: {track.waits_for}"), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show()


def _line(track: Track) -> str:
    sent, judged, durable = (f"{share:.0%}" for share in track.shares())
    return printable(
        f"{track.import_id or '-'} {track.name}: {track.state}; sent {sent}, judged {judged}, durable {durable}"
    )
