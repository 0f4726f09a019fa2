"""A CSV header row in, the layout of the rows behind it out. Refuses headers that do not suit the table."""

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from millrace.formats.csv_rows import row_spans
from millrace.formats.matching import missing, refuse_mismatch
from millrace.formats.pieces import UploadOptions
from millrace.model.chunk import TextLayout
from millrace.model.columns import MAX_COLUMNS
from millrace.model.errors import Invalid
from millrace.model.table import Definition

DELIMITERS = ",;\t|"


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
        names = _names(row, layout.delimiter, layout.quote)
    except pa.ArrowInvalid as error:
        remedy = "Close it, or check the quote setting."
        raise Invalid(f"{where} has a quote that never closes.", remedy=remedy) from error
    hint = _other_delimiter(row, layout, names, definition, options.deletes)
    refuse_mismatch(names, definition, where, deletes=options.deletes, hint=hint)
    return replace(layout, columns=_distinct(names))


def _names(row: bytes, delimiter: str, quote: str) -> list[str]:
    spans = row_spans(row, delimiter, quote)
    text = row[int(spans.starts[0]) : int(spans.ends[0])] if len(spans.starts) else b""
    options = pacsv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=True)
    read = pacsv.ReadOptions(use_threads=False, block_size=len(text) + 2)
    table = pacsv.read_csv(io.BytesIO(text + b"\n"), read_options=read, parse_options=options)
    return [name.strip() for name in table.column_names]


def _names_if_any(row: bytes, delimiter: str, quote: str) -> list[str]:
    try:
        return _names(row, delimiter, quote)
    except pa.ArrowInvalid:
        return []


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Names for the layout, where each column needs its own. Unknown columns of a file may share a name."""
    first = set(np.unique(names, return_index=True)[1].tolist())
    return tuple(name if at in first else f"{name}#{at + 1}" for at, name in enumerate(names))


def _other_delimiter(row: bytes, layout: TextLayout, names: list[str], definition: Definition, deletes: bool) -> str:
    lacking = len(missing(names, definition, deletes=deletes))
    for other in DELIMITERS:
        if lacking and other not in (layout.delimiter, layout.quote) and other.encode() in row:
            found = _names_if_any(row, other, layout.quote)
            if len(missing(found, definition, deletes=deletes)) < lacking:
                return f"The header looks as if columns were separated by {other!r}: declare this delimiter."
    return ""
