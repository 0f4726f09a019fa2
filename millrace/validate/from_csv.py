"""A CSV chunk: cells in, typed columns and faults out.

An unquoted cell that equals the null text is null. A required text column reads an empty null text as the empty string; a
primary key never does. A column that the file does not have takes its default, else null, else each row has a fault."""

import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.formats.matching import unknown
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.fields import assigned
from millrace.validate.cells import is_utf8, typed_cells
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
    return Parsed(
        columns, cells.positions, faults, cells.rows, lambda rows: _originals(body, layout, rows), marks, kept
    )


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
    cells, faults = _without_nulls(column, is_key, cells, null_text)
    values, found = typed_cells(column, cells, clean=clean, has_nul=has_nul)
    return values, faults + found + (long_keys(column, values) if is_key else [])


def _without_nulls(column: Column, is_key: bool, cells: pa.Array, null_text: str) -> Outcome:
    if not cells.null_count or (column.nullable and not is_key):
        return cells, []
    is_text = column.kind in ("string", "bytes") and column.logical is None
    if is_text and not null_text and not is_key:
        return cells.fill_null(b""), []
    return cells, [missing(column, is_key, indices(pc.is_null(cells)))]
