"""CSV text in, its dialect out: delimiter and quote.

Each likely pair of delimiter and quote is tried with the judge's own parser. The pair whose rows agree best wins."""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_cut import DELIMITERS, first_row
from millrace.model.chunk import TextLayout
from millrace.validate.cells import is_utf8
from millrace.validate.csv_cells import CsvCells, read_cells

LOOKED_AT = 256 << 10
_QUOTES = "\"'"
# Characters that the text does not contain serve as "no quote" or "no delimiter".
_UNUSED = "\x1f\x1e\x1d\x1c\x02\x03\x04\x05"
_DISAGREEMENT_COSTS = 8
_RIVAL = 0.2
# If a larger share of rows disagrees, it is no delimiter, and each line is one cell.
_MOST_STRAYS = 0.25


@dataclass(frozen=True, slots=True)
class CsvGuess:
    """A possible dialect, the cells of the first row, and how many rows (`strays`) have another number of cells."""

    delimiter: str
    quote: str
    first_row: tuple[str, ...]
    rows: int = 0
    strays: int = 0

    @property
    def is_clean(self) -> bool:
        return len(self.first_row) > 1 and not self.strays

    @property
    def quality(self) -> float:
        agreeing = 1 - self.strays / max(1, self.rows)
        return float((len(self.first_row) - 1) * agreeing**_DISAGREEMENT_COSTS)


def written_as(text: bytes) -> CsvGuess:
    """`text` begins at the start of the file."""
    text = whole_lines(text)
    none = next((letter for letter in _UNUSED if letter.encode() not in text), _UNUSED[0])
    quotes = [quote for quote in _QUOTES if quote == '"' or quote.encode() in text] + [none]
    tried = [_tried(text, delimiter, quote) for quote in quotes for delimiter in DELIMITERS]
    # The first of equals wins, so quotes and delimiters are tried in the order of preference.
    best = max(tried, key=lambda each: each.quality)
    clean = [each for each in tried if each.is_clean and each.quality >= _RIVAL * best.quality]
    # Prefer a quote under which no row is broken.
    clean = clean or [each for each in tried if each.delimiter == best.delimiter and not each.strays]
    found = max(clean, key=lambda each: each.quality, default=best)
    if found.strays > _MOST_STRAYS * found.rows or (len(found.first_row) == 1 and found.strays):
        rare = next(letter for letter in reversed(_UNUSED) if letter != none)
        tried += [_tried(text, rare, '"'), _tried(text, rare, none)]
        return min(tried, key=lambda each: each.strays + len(each.first_row) - 1)
    return _apostrophes(text, found)


def whole_lines(text: bytes) -> bytes:
    """The start of a text up to a line end; all of a short text."""
    if len(text) <= LOOKED_AT:
        return text
    start = text[:LOOKED_AT]
    return start[: max(start.rfind(b"\n"), start.rfind(b"\r")) + 1] or start


def _tried(text: bytes, delimiter: str, quote: str) -> CsvGuess:
    first = _first_cells(text, delimiter, quote)
    cells = cells_of(text, layout_of(len(first), delimiter, quote), ())
    if cells is None:
        return CsvGuess(delimiter, quote, first, 1, 1)
    return CsvGuess(delimiter, quote, first, cells.rows, len(cells.miscounted) + _lopsided(text, delimiter, quote))


def _lopsided(text: bytes, delimiter: str, quote: str) -> int:
    """How many quotes begin a cell without ending one, or end one without beginning it, if most do so: then they are text,
    such as inches."""
    mark, edges = quote.encode(), (delimiter.encode(), b"\n", b"\r")
    opening = sum(text.count(edge + mark) for edge in edges) + text.startswith(mark)
    closing = sum(text.count(mark + edge) for edge in edges) + text.endswith(mark)
    fewer, more = sorted((opening, closing))
    return more - fewer if fewer * 2 < more else 0


def _first_cells(text: bytes, delimiter: str, quote: str) -> tuple[str, ...]:
    try:
        return tuple(first_row(text, delimiter, quote))
    except pa.ArrowInvalid:
        return ("",)


def layout_of(columns: int, delimiter: str, quote: str, null_text: str = "") -> TextLayout:
    """A layout whose columns are named by position."""
    return TextLayout(tuple(map(str, range(columns))), delimiter, quote, null_text)


def cells_of(text: bytes, layout: TextLayout, wanted: tuple[str, ...] | None = None) -> CsvCells | None:
    """The cells of all columns, or of the wanted ones; None if the text is not CSV."""
    names = set(layout.columns if wanted is None else wanted)
    try:
        return read_cells(text, layout, names, clean=text.isascii() or is_utf8(text))
    except pa.ArrowInvalid:
        return None


def _apostrophes(text: bytes, found: CsvGuess) -> CsvGuess:
    """Chooses the apostrophe as quote if it encloses all cells of a column, or a cell of several lines."""
    if found.quote != '"' or b"'" not in text:
        return found
    rival = _tried(text, found.delimiter, "'")
    cells = cells_of(text, layout_of(len(found.first_row), found.delimiter, '"'))
    if cells is None or len(rival.first_row) != len(found.first_row) or rival.strays > found.strays:
        return found
    if any(_stand_in_apostrophes(column) for column in cells.columns.values()):
        return rival
    return rival if _span_lines_in_apostrophes(text, found.delimiter) else found


def _stand_in_apostrophes(cells: pa.Array) -> bool:
    present = cells.drop_null()
    ends = pc.and_(pc.starts_with(present, "'"), pc.ends_with(present, "'"))
    return len(present) > 0 and bool(pc.all(pc.and_(ends, pc.greater(pc.binary_length(present), 1))).as_py())


def _span_lines_in_apostrophes(text: bytes, delimiter: str) -> bool:
    """Whether a quoted cell contains a line end, and all apostrophes of the text belong to quoted cells."""
    edges = rb"\r\n" + re.escape(delimiter.encode())
    quoted = re.compile(rb"(?<![^%b])'(?:[^']++|'')*+'(?![^%b])" % (edges, edges))
    spans_lines = any(b"\n" in cell or b"\r" in cell for cell in quoted.findall(text))
    return spans_lines and b"'" not in quoted.sub(b"", text)
