"""Cuts CSV (RFC 4180) into pieces: the row rule and the header. Refuses a header that does not suit the table."""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from millrace.formats import bits
from millrace.formats.csv_rows import LineEnds, line_ends, open_lines, row_spans
from millrace.formats.matching import missing, readable_columns, refuse_mismatch
from millrace.formats.pieces import Opening, UploadOptions
from millrace.formats.repeated_header import without_repeats
from millrace.formats.text_cut import RowTally, TextCutter
from millrace.model.chunk import TextLayout
from millrace.model.columns import MAX_COLUMNS, ROW_COLUMN
from millrace.model.errors import Invalid
from millrace.model.fields import assigned
from millrace.model.table import SKIP_HEADER, Definition

DELIMITERS = ",;\t|"


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
    layout = TextLayout(columns, dialect.delimiter, dialect.quote, dialect.null_text, dialect.header)

    may_skip = dialect.skip_lines

    def read_head(row: bytes, line: int) -> TextLayout | None:
        nonlocal may_skip
        if may_skip and not _suits(row, definition, layout, options):
            may_skip -= 1
            return None
        return read_header(row, line, definition, layout, options)

    rule = CsvRows(dialect.delimiter, dialect.quote)
    return TextCutter(
        rule,
        layout,
        opening.limits,
        read_head=read_head if dialect.header else None,
        without_repeats=without_repeats if dialect.header and dialect.repeated_header == SKIP_HEADER else None,
        resume=resume,
    )


def read_header(
    row: bytes, line: int, definition: Definition, layout: TextLayout, options: UploadOptions
) -> TextLayout:
    where = f"{options.what}: the header in line {line}"
    try:
        row.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"{where} is not UTF-8.", remedy="Declare the file's encoding.") from error
    limit = MAX_COLUMNS + len(definition.columns)
    # This counts delimiters inside quotes too. A header of names has few of them.
    if row.count(layout.delimiter.encode()) >= limit:
        remedy = "Check the delimiter setting, or send fewer columns."
        raise Invalid(f"{where} has more than {limit} columns.", remedy=remedy)
    try:
        names = [name.strip() for name in first_row(row, layout.delimiter, layout.quote)]
    except pa.ArrowInvalid as error:
        remedy = "Close it, or check the quote setting."
        raise Invalid(f"{where} has a quote that never closes.", remedy=remedy) from error
    hint = _other_delimiter(row, layout, names, definition, options.deletes)
    if not hint and not assigned(names, readable_columns(definition, deletes=options.deletes)):
        hint = "If it is a row and no header, send the file with header=false (--no-header)."
    declared = [name for name in names if not (options.amends and name == ROW_COLUMN)]
    refuse_mismatch(declared, definition, where, deletes=options.deletes, hint=hint)
    return replace(layout, columns=_distinct(names))


def _suits(row: bytes, definition: Definition, layout: TextLayout, options: UploadOptions) -> bool:
    """Whether the row is the header of a file that needs no lines to be skipped, such as one with corrected rows."""
    try:
        read_header(row, 1, definition, layout, options)
    except Invalid:
        return False
    return True


def first_row(text: bytes, delimiter: str, quote: str) -> list[str]:
    """The cells of the first row. Raises pyarrow.ArrowInvalid if it has a quote that never closes."""
    spans = row_spans(text, delimiter, quote)
    row = text[int(spans.starts[0]) : int(spans.ends[0])] if len(spans.starts) else b""
    row = row.decode("utf-8", "replace").encode() + b"\n"
    options = pacsv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=True)
    read = pacsv.ReadOptions(use_threads=False, block_size=len(row) + 1)
    cells: list[str] = pacsv.read_csv(pa.BufferReader(row), read, options).column_names
    return cells


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names for the layout, where each column needs its own. Unknown columns of a file may share a name."""
    first = set(np.unique(names, return_index=True)[1].tolist())
    return tuple(name if at in first else f"{name}#{at + 1}" for at, name in enumerate(names))


def _other_delimiter(row: bytes, layout: TextLayout, names: list[str], definition: Definition, deletes: bool) -> str:
    lacking = len(missing(names, definition, deletes=deletes))
    for other in DELIMITERS:
        if lacking and other not in (layout.delimiter, layout.quote) and other.encode() in row:
            found: list[str] = []
            with suppress(pa.ArrowInvalid):
                found = [name.strip() for name in first_row(row, other, layout.quote)]
            if len(missing(found, definition, deletes=deletes)) < lacking:
                return f"The header looks as if columns were separated by {other!r}: declare this delimiter."
    return ""
