"""A CSV chunk: cells in, typed columns and faults out.

An unquoted cell that equals the null text is null, and so is any cell that equals a text for null of its column. A required
text column reads an empty null text as the empty string; a primary key never does. A column that the file does not have takes
its default, else null, else each row has a fault."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.formats.matching import unknown
from millrace.formats.repeated_header import repeated_rows
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.fields import assigned
from millrace.validate.blanks import has_blanks, without_blanks
from millrace.validate.cells import is_utf8, typed_cells, without_broken_text
from millrace.validate.csv_cells import CsvCells, read_cells, unclosed_quote
from millrace.validate.faults import RowFault, Rows, indices
from millrace.validate.parsed import Originals, Parsed, Reading, Undecodable, long_keys, missing, slices, typed_columns
from millrace.validate.rescue import rescued, text_parts
from millrace.validate.text import Outcome


def parse_csv(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    layout = header.layout
    if layout is None:
        raise Undecodable("The chunk's stamp does not say how its CSV is written.")
    clean = body.isascii() or is_utf8(body)
    names = assigned(layout.columns, reading.columns)
    others = unknown(layout.columns, reading.columns) if reading.rescues else []
    marked = reading.marked and DELETED_COLUMN in layout.columns
    wanted = {*names.values(), *others, *([DELETED_COLUMN] if marked else [])}
    try:
        cells = read_cells(body, layout, wanted, clean=clean)
    except pa.ArrowInvalid as error:
        raise Undecodable(f"The chunk cannot be read as CSV: {error}") from error
    has_nul = b"\0" in body
    entries = cells.rows - len(cells.miscounted)

    def typed(column: Column, is_key: bool, name: str) -> Outcome:
        return _typed(column, is_key, cells.columns[name], layout.null_text, clean, has_nul)

    columns, found = typed_columns(reading, names, entries, typed)
    marks = cells.columns[DELETED_COLUMN].view(pa.string()) if marked else None
    kept, more = _rescued(cells, others, entries, clean) if reading.rescues else (None, [])
    faults = _miscounted(cells, layout) + unclosed_quote(body, layout, cells)
    faults += [fault.at(cells.positions) for fault in found + more]
    # The cutter has left out what the table skips. Replayed rows did not come through it.
    may_repeat = layout.headed and (reading.rejects_headers or header.row_numbers is not None)
    repeats = repeated_rows(body, layout) if may_repeat else None

    def originals(rows: Rows) -> Originals:
        return _originals(body, layout, rows)

    return Parsed(columns, cells.positions, faults, cells.rows, originals, marks, kept, repeats)


def _rescued(cells: CsvCells, names: list[str], entries: int, clean: bool) -> Outcome:
    parts, faults = {}, []
    for name in names:
        parts[name], found = text_parts(name, cells.columns[name], clean=clean)
        faults += found
    return rescued(parts, entries), faults


def _miscounted(cells: CsvCells, layout: TextLayout) -> list[RowFault]:
    if not len(cells.miscounted):
        return []
    counts = pa.array(cells.counts)
    noun = pc.if_else(pc.equal(counts, 1), " cell, the file has ", " cells, the file has ")
    messages = pc.binary_join_element_wise("has ", counts.cast(pa.string()), noun, f"{len(layout.columns)} columns", "")
    return [RowFault(cells.miscounted, None, "columns", messages, pa.nulls(len(counts), pa.string()))]


def _originals(body: bytes, layout: TextLayout, rows: Rows) -> Originals:
    spans = row_spans(body, layout.delimiter, layout.quote)
    return Originals(slices(body, spans.starts, spans.ends, rows), spans.lines[rows])


def _typed(column: Column, is_key: bool, cells: pa.Array, null_text: str, clean: bool, has_nul: bool) -> Outcome:
    empty_is_text = not null_text and not is_key and _is_required_text(column)
    if cells.null_count and (empty_is_text or _is_boolean_text(column, null_text)):
        cells = cells.fill_null(null_text.encode())
    broken: list[RowFault] = []
    if has_blanks(column):
        if not clean:
            cells, broken = without_broken_text(column, cells)
            clean = True
        cells = without_blanks(column, cells, None if empty_is_text else null_text)
    faults = broken + _missing(column, is_key, cells, broken)
    values, found = typed_cells(column, cells, clean=clean, has_nul=has_nul)
    return values, faults + found + (long_keys(column, values) if is_key else [])


def _is_required_text(column: Column) -> bool:
    return not column.nullable and column.kind in ("string", "bytes") and column.logical is None


def _is_boolean_text(column: Column, null_text: str) -> bool:
    """Whether the file's text for null means true or false in this column: an empty cell beside an x."""
    return column.kind == "boolean" and null_text.lower() in (*column.written.true_texts, *column.written.false_texts)


def _missing(column: Column, is_key: bool, cells: pa.Array, broken: Sequence[RowFault]) -> list[RowFault]:
    if not cells.null_count or (column.nullable and not is_key):
        return []
    absent = indices(pc.is_null(cells))
    for fault in broken:
        absent = np.setdiff1d(absent, fault.rows)
    return [missing(column, is_key, absent)] if len(absent) else []
