"""The lines of a CSV text with a quote that never closes: bytes in, the places of the lines out.

Such a line becomes one rejected row, and reading continues behind it, outside quotes. A text can have many such lines, so
each step only searches in the results of a single pass."""

import numpy as np

from millrace.formats import bits
from millrace.formats.bits import Positions
from millrace.formats.csv_rows import line_ends, quote_runs

Line = tuple[int, int]


def open_lines(body: bytes, delimiter: str, quote: str, most: int) -> list[Line]:
    """Start and end of each such line, at most `most` of them. The text begins at the start of a row."""
    if quote.encode() not in body:
        return []
    text = _Quoting(body, delimiter, quote)
    found: list[Line] = []
    start = 0
    while len(found) < most and text.ends_quoted(start):
        first = text.behind_last_row(start)
        start = text.behind_line(first)
        found.append((first, start))
    return found


class _Quoting:
    """Finds the quoting state for any start. See csv_rows: a run of quotes either toggles the quoting or ends it."""

    def __init__(self, body: bytes, delimiter: str, quote: str) -> None:
        self._size = len(body)
        self._breaks = bits.positions(line_ends(body, delimiter, quote).closes)
        self._runs, toggles = quote_runs(np.frombuffer(body, np.uint8), ord(delimiter), ord(quote))
        self._toggled = np.append(0, np.cumsum(toggles))
        self._enders = self._runs[~toggles]
        self._toggled_at_enders = self._count(self._enders)
        counts = self._count(self._breaks)
        self._by_parity = [self._breaks[counts & 1 == parity] for parity in (0, 1)]
        # Behind a run that ends the quoting, the state does not depend on the start.
        ender = np.searchsorted(self._enders, self._breaks) - 1
        since = counts - np.append(self._toggled_at_enders, 0)[ender]
        self._settled = self._breaks[(ender >= 0) & (since & 1 == 0)]

    def ends_quoted(self, start: int) -> bool:
        settled = len(self._enders) and self._enders[-1] >= start
        before = self._toggled_at_enders[-1] if settled else self._toggled_before(start)
        return bool((self._toggled[-1] - before) & 1)

    def behind_last_row(self, start: int) -> int:
        """The position behind the last line end outside quotes, if reading begins at `start`."""
        place = int(np.searchsorted(self._enders, start))
        ender = int(self._enders[place]) if place < len(self._enders) else self._size
        if len(self._settled) and self._settled[-1] > ender:
            return int(self._settled[-1]) + 1
        alike = self._by_parity[self._toggled_before(start) & 1]
        last = int(np.searchsorted(alike, ender)) - 1
        return int(alike[last]) + 1 if last >= 0 and alike[last] >= start else start

    def behind_line(self, start: int) -> int:
        place = int(np.searchsorted(self._breaks, start))
        return int(self._breaks[place]) + 1 if place < len(self._breaks) else self._size

    def _toggled_before(self, place: int) -> int:
        return int(self._count(np.array([place]))[0])

    def _count(self, places: Positions) -> Positions:
        counts: Positions = self._toggled[np.searchsorted(self._runs, places)]
        return counts
