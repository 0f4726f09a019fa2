"""Where the rows of a CSV text are, by pyarrow's quote rule: bytes in, positions out. Refuses nothing.

A quote opens only at the start of a field. Inside quotes a doubled quote is text and a single quote ends the quoting.
Elsewhere quotes are text. Rows end at LF, CRLF or a lone CR outside quotes. Blank lines are no rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace.formats import bits
from millrace.formats.bits import Bits, Positions

Octets = NDArray[np.uint8]

LF, CR = 10, 13
Line = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RowSpans:
    """For each row: its start, its end (before the line end), and the number of line ends before it."""

    starts: Positions
    ends: Positions
    lines: Positions


@dataclass(frozen=True, slots=True)
class LineEnds:
    """The first octet of each line end, the last octet of each line end, and the octets outside quotes.

    `unquoted` is correct at line ends only."""

    opens: Bits
    closes: Bits
    unquoted: Bits


def row_spans(body: bytes, delimiter: str, quote: str) -> RowSpans:
    """The rows of a text that begins at the start of a row."""
    found = line_ends(body, delimiter, quote)
    starts = np.append(0, bits.positions(found.closes & found.unquoted) + 1)
    ends = np.append(bits.positions(found.opens & found.unquoted), len(body))
    lines = np.append(0, np.searchsorted(bits.positions(found.closes), starts[1:]))
    filled = ends > starts
    return RowSpans(starts[filled], ends[filled], lines[filled])


def line_ends(body: bytes, delimiter: str, quote: str) -> LineEnds:
    octets = np.frombuffer(body, np.uint8)
    feeds = bits.where(octets == LF)
    returns = bits.where(octets == CR) if b"\r" in body else np.zeros_like(feeds)
    opens, closes = feeds, feeds
    if b"\r" in body:
        opens = returns | (feeds & ~bits.following(returns))
        closes = feeds | (returns & ~bits.preceding(feeds))
    return LineEnds(opens, closes, _unquoted(body, octets, feeds | returns, delimiter, quote))


def _unquoted(body: bytes, octets: Octets, breaks: Bits, delimiter: str, quote: str) -> Bits:
    if quote.encode() not in body:
        return ~np.zeros_like(breaks)
    quotes = bits.where(octets == ord(quote))
    quoted = bits.odd_so_far(quotes)
    may_open = bits.following(quotes | breaks | bits.where(octets == ord(delimiter)), start=True)
    if not (quotes & quoted & ~may_open).any():
        return ~quoted
    return _unquoted_breaks(octets, bits.positions(breaks), ord(delimiter), ord(quote))


def _unquoted_breaks(octets: Octets, breaks: Positions, delimiter: int, quote: int) -> Bits:
    """The line ends outside quotes, for a text with quotes in the middle of fields, where counting quotes is not enough.

    Only runs of adjacent quotes with an odd length matter. At the start of a field such a run toggles the quoting.
    Anywhere else it ends the quoting: inside quotes it closes them, outside it is text. So the state behind a run is the
    parity of the toggles since the last run that ended the quoting."""
    firsts, toggles = quote_runs(octets, delimiter, quote)
    tally: Positions = np.cumsum(toggles)
    since_end = tally - np.maximum.accumulate(np.where(toggles, 0, tally))
    quoted = np.append(False, since_end & 1 == 1)
    mask = np.zeros(len(octets), np.bool_)
    mask[breaks] = ~quoted[np.searchsorted(firsts, breaks)]
    return bits.where(mask)


def quote_runs(octets: Octets, delimiter: int, quote: int) -> tuple[Positions, NDArray[np.bool_]]:
    """The start of each run of quotes with an odd length, and whether it is at the start of a field."""
    firsts = _odd_runs(np.flatnonzero(octets == quote))
    earlier = octets[firsts - 1]
    return firsts, (earlier == delimiter) | (earlier == LF) | (earlier == CR) | (firsts == 0)


def _odd_runs(quotes: Positions) -> Positions:
    """The first position of each run of adjacent positions with an odd length."""
    opens = np.ones(len(quotes), np.bool_)
    opens[1:] = np.diff(quotes) != 1
    heads = np.flatnonzero(opens)
    lengths = np.diff(np.append(heads, len(quotes)))
    odd: Positions = quotes[heads[lengths & 1 == 1]]
    return odd


def open_lines(body: bytes, delimiter: str, quote: str, most: int) -> list[Line]:
    """Start and end of each line with a quote that never closes, at most `most` of them. The text begins with a row.

    Such a line becomes one rejected row, and reading continues behind it, outside quotes. A text can have many such lines, so
    each step only searches in the results of a single pass."""
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
    """Finds the quoting state for any start. A run of quotes either toggles the quoting or ends it."""

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
