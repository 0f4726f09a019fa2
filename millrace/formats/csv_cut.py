"""Cuts CSV (RFC 4180) into pieces: the row rule and the header. Refuses a header that does not suit the table."""

from dataclasses import dataclass

from millrace.formats import bits
from millrace.formats.csv_header import read_header
from millrace.formats.csv_rows import LineEnds, line_ends
from millrace.formats.matching import readable_columns
from millrace.formats.open_lines import open_lines
from millrace.formats.pieces import Opening
from millrace.formats.text_cut import RowTally, TextCutter
from millrace.model.chunk import TextLayout


@dataclass(frozen=True, slots=True)
class CsvRows:
    delimiter: str
    quote: str
    encoding: str = "csv"

    def whole_rows(self, window: bytes, limit: int) -> RowTally | None:
        found = line_ends(window, self.delimiter, self.quote)
        return _tally(found, bits.last(bits.before(found.closes & found.unquoted, limit)))

    def first_row(self, window: bytes, limit: int) -> RowTally | None:
        found = line_ends(window, self.delimiter, self.quote)
        return _tally(found, bits.first(bits.before(found.closes & found.unquoted, limit)))

    def all_rows(self, body: bytes) -> RowTally:
        found = line_ends(body, self.delimiter, self.quote)
        tally = _tally(found, bits.last(found.closes & found.unquoted)) or RowTally(0, 0, 0)
        return RowTally(len(body), tally.rows + (tally.end < len(body)), bits.count(found.closes))

    def first_line(self, window: bytes) -> int | None:
        ends = [at for at in (window.find(b"\n"), window.find(b"\r")) if at >= 0]
        if not ends:
            return None
        return min(ends) + (2 if window.startswith(b"\r\n", min(ends)) else 1)

    def open_lines(self, body: bytes, most: int) -> list[tuple[int, int]]:
        return open_lines(body, self.delimiter, self.quote, most)


def _tally(found: LineEnds, at: int | None) -> RowTally | None:
    """Rows and lines up to the line end whose last octet is at the position."""
    if at is None:
        return None
    ends = found.opens & found.unquoted
    blank = ends & bits.following(found.closes & found.unquoted, start=True)
    end = at + 1
    rows = bits.count(bits.before(ends & ~blank, end))
    return RowTally(end, rows, bits.count(bits.before(found.closes, end)))


def csv_cutter(opening: Opening) -> TextCutter:
    definition, options, dialect, resume = opening.definition, opening.options, opening.dialect, opening.resume
    declared = tuple(column.name for column in readable_columns(definition, deletes=options.deletes))
    columns = tuple(resume["columns"]) if resume else declared
    layout = TextLayout(columns, dialect.delimiter, dialect.quote, dialect.null_text)

    def read_head(row: bytes, line: int) -> TextLayout:
        return read_header(row, line, definition, layout, options)

    rule = CsvRows(dialect.delimiter, dialect.quote)
    return TextCutter(rule, layout, opening.limits, read_head=read_head if dialect.header else None, resume=resume)
