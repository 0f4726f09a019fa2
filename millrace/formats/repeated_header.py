"""Finds the rows of a CSV text that repeat the file's header, as files do that were put together from others.

Such a row has the header's cells after unquoting and trimming; a byte order mark may stand before it."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from millrace.formats.bits import Positions
from millrace.formats.csv_rows import RowSpans, row_spans
from millrace.model.chunk import TextLayout

_BOM = b"\xef\xbb\xbf"
# Also the no-break space.
_SPACE = rb"(?:[ \t\r\n\f\v]|\xc2\xa0)*"
_MAY_BEGIN = b" \t\f\v\xc2\xef"
_MAY_END = b" \t\f\v\xa0"
_NOTHING: Positions = np.empty(0, np.int64)


def without_repeats(body: bytes, layout: TextLayout) -> tuple[bytes, int]:
    """The text with an empty line in place of each row that repeats the header, and their number. No line moves."""
    finder = _finder(layout.columns, layout.delimiter, layout.quote)
    spans, rows = finder.find(body)
    if spans is None or not len(rows):
        return body, 0
    parts, end = [], 0
    for start, stop in zip(spans.starts[rows].tolist(), spans.ends[rows].tolist(), strict=True):
        parts += [body[end:start], _only_line_ends(body[start:stop])]
        end = stop
    return b"".join([*parts, body[end:]]), len(rows)


def repeated_rows(body: bytes, layout: TextLayout) -> Positions:
    """The numbers, from 0, of the rows that repeat the header."""
    return _finder(layout.columns, layout.delimiter, layout.quote).find(body)[1]


def _only_line_ends(row: bytes) -> bytes:
    return b"".join(re.findall(rb"\r\n|\r|\n", row))


class _HeaderFinder:
    """Most texts lack an octet of the titles, or the longest title: they cost a few searches. In others, rows are told apart
    by their first and last octets and their length, and the few that are left are compared."""

    def __init__(self, titles: Sequence[str], delimiter: str, quote: str) -> None:
        self._delimiter, self._quote = delimiter, quote
        names = [title.encode() for title in titles]
        mark = quote.encode()
        self._needle = max((part for name in names for part in name.split(mark)), key=len)
        # Digits last: most values have them. An octet that a text contains is found within its first rows.
        self._octets = sorted({bytes([octet]) for octet in self._needle}, key=lambda octet: (octet.isdigit(), octet))
        self._least = sum(map(len, names)) + len(names) - 1
        self._begins = np.frombuffer(_MAY_BEGIN + mark + (names[0] or delimiter.encode())[:1], np.uint8)
        self._ends = np.frombuffer(_MAY_END + mark + (names[-1] or delimiter.encode())[-1:], np.uint8)
        cells = re.escape(delimiter.encode()).join(_cell(name, delimiter.encode(), mark) for name in names)
        self._equals = re.compile(b"(?:" + _BOM + b")*" + cells)

    def find(self, body: bytes) -> tuple[RowSpans | None, Positions]:
        if not self._may_contain(body):
            return None, _NOTHING
        spans = row_spans(body, self._delimiter, self._quote)
        likely = self._likely(np.frombuffer(body, np.uint8), spans)
        bounds = zip(likely.tolist(), spans.starts[likely].tolist(), spans.ends[likely].tolist(), strict=True)
        found = [row for row, start, end in bounds if self._equals.fullmatch(body, start, end)]
        return spans, np.array(found, np.int64)

    def _may_contain(self, body: bytes) -> bool:
        # A search for one octet takes a sixth of the time of a search for a title.
        return bool(self._needle) and all(octet in body for octet in self._octets) and self._needle in body

    def _likely(self, octets: NDArray[np.uint8], spans: RowSpans) -> Positions:
        rows = np.flatnonzero(spans.ends - spans.starts >= self._least)
        rows = rows[np.isin(octets[spans.starts[rows]], self._begins)]
        return rows[np.isin(octets[spans.ends[rows] - 1], self._ends)]


@lru_cache(maxsize=64)
def _finder(columns: tuple[str, ...], delimiter: str, quote: str) -> _HeaderFinder:
    return _HeaderFinder(_titles(columns), delimiter, quote)


def _titles(columns: tuple[str, ...]) -> list[str]:
    """The titles in the file. A layout tells columns of the same title apart: `x`, `x#3`."""
    titles: list[str] = []
    for number, column in enumerate(columns, 1):
        plain = column.removesuffix(f"#{number}")
        titles.append(plain if plain in titles else column)
    return titles


def _cell(title: bytes, delimiter: bytes, quote: bytes) -> bytes:
    """How a cell with this title may be written: quoted or, if it can be read so, not."""
    mark = re.escape(quote)
    quoted = mark + _SPACE + re.escape(title.replace(quote, 2 * quote)) + _SPACE + mark + _SPACE
    if title.startswith(quote) or any(letter in title for letter in (delimiter, b"\n", b"\r")):
        return quoted
    return b"(?:" + quoted + b"|" + _SPACE + re.escape(title) + _SPACE + b")"
