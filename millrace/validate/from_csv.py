"""A CSV chunk: cells in, typed columns and faults out.

An unquoted cell that is the null text is null; a required text column reads the empty null text as the empty string, but a
primary key never does. A column the file does not have takes its default, else null, else every row lacks it."""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.columns import Column
from millrace.model.table import Definition
from millrace.validate.absent import absent_column
from millrace.validate.csv_cells import Cells, read_cells
from millrace.validate.faults import Fault, Rows, indices, same
from millrace.validate.json_values import Misfit, fit
from millrace.validate.parsed import Originals, Parsed, Undecodable, long_keys, lossy, missing, slices
from millrace.validate.text import Outcome, typed_text

_NESTED = ("record", "array", "map")


def parse_csv(header: ChunkHeader, body: bytes, definition: Definition) -> Parsed:
    layout = header.layout
    if layout is None:
        raise Undecodable("The chunk's stamp does not say how its CSV is written.")
    try:
        cells = read_cells(body, layout, {column.name for column in definition.columns})
    except pa.ArrowInvalid as error:
        raise Undecodable(f"The chunk cannot be read as CSV: {error}") from error
    clean = body.isascii() or _is_utf8(body)
    has_nul = b"\0" in body
    columns, faults = [], _miscounted(cells, layout)
    for column in definition.columns:
        is_key = column.name in definition.table.primary_key
        given = cells.columns.get(column.name)
        if given is None:
            values, found = absent_column(column, is_key, cells.rows - len(cells.miscounted))
        else:
            values, found = _typed(column, is_key, given, layout.null_text, clean, has_nul)
        columns.append(values)
        faults += [fault.at(cells.positions) for fault in found]
    return Parsed(columns, cells.positions, faults, cells.rows, lambda rows: _originals(body, layout, rows))


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _miscounted(cells: Cells, layout: TextLayout) -> list[Fault]:
    if not len(cells.miscounted):
        return []
    counts = pa.array(cells.counts)
    noun = pc.if_else(pc.equal(counts, 1), " cell, the file has ", " cells, the file has ")
    messages = pc.binary_join_element_wise("has ", counts.cast(pa.string()), noun, f"{len(layout.columns)} columns", "")
    return [Fault(cells.miscounted, None, "columns", messages, pa.nulls(len(counts), pa.string()))]


def _originals(body: bytes, layout: TextLayout, rows: Rows) -> Originals:
    spans = row_spans(body, layout.delimiter, layout.quote)
    return Originals(slices(body, spans.starts, spans.ends, rows), spans.lines[rows])


def _typed(column: Column, is_key: bool, cells: pa.Array, null_text: str, clean: bool, has_nul: bool) -> Outcome:
    cells, faults = _without_nulls(column, is_key, cells, null_text)
    if column.kind != "bytes" or column.logical:
        if not clean:
            cells, found = _without_broken_text(column, cells)
            faults += found
        if has_nul:
            cells, found = _without_nul(column, cells)
            faults += found
    text = cells.view(pa.string())
    values, found = _nested(column, text) if column.kind in _NESTED else typed_text(column, text)
    return values, faults + found + (long_keys(column, values) if is_key else [])


def _without_nulls(column: Column, is_key: bool, cells: pa.Array, null_text: str) -> Outcome:
    if not cells.null_count or (column.nullable and not is_key):
        return cells, []
    if column.arrow in (pa.string(), pa.binary()) and _plain_text(column) and not null_text and not is_key:
        return cells.fill_null(b""), []
    return cells, [missing(column, is_key, indices(pc.is_null(cells)))]


def _plain_text(column: Column) -> bool:
    return column.kind in ("string", "bytes") and column.logical is None


def _without_broken_text(column: Column, cells: pa.Array) -> Outcome:
    """Cells that are no UTF-8 become null and a fault. Only the cells with bytes beyond ASCII are looked at one by one."""
    beyond = indices(pc.invert(pc.string_is_ascii(cells.view(pa.string()))).fill_null(False))
    suspects = cells.take(pa.array(beyond)).to_pylist()
    broken = beyond[np.array([not _is_utf8(cell) for cell in suspects], bool)]
    if not len(broken):
        return cells, []
    fault = same(broken, column.name, "utf8", "is not valid UTF-8", lossy(cells.take(pa.array(broken))))
    return _blanked(cells, broken), [fault]


def _without_nul(column: Column, cells: pa.Array) -> Outcome:
    found = indices(pc.match_substring(cells, b"\0").fill_null(False))
    if not len(found):
        return cells, []
    fault = same(found, column.name, "nul", "contains a NUL character", lossy(cells.take(pa.array(found))))
    return _blanked(cells, found), [fault]


def _blanked(cells: pa.Array, rows: Rows) -> pa.Array:
    mask = np.zeros(len(cells), bool)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, cells.type), cells)


def _nested(column: Column, text: pa.Array) -> Outcome:
    values, bad, reasons = [], [], []
    for row, cell in enumerate(text.to_pylist()):
        try:
            values.append(None if cell is None else _fitted(column, cell))
        except Misfit as misfit:
            values.append(None)
            bad.append(row)
            reasons.append(misfit)
    array = pa.array(values, column.arrow)
    shown = lossy(text.take(pa.array(bad, pa.int64())))
    return array, [
        Fault(np.array([row]), column.name, misfit.rule, pa.array([misfit.message]), shown.slice(place, 1))
        for place, (row, misfit) in enumerate(zip(bad, reasons, strict=True))
    ]


def _fitted(column: Column, cell: str) -> object:
    try:
        value = orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        raise Misfit("json", f"is not valid JSON: {error}") from error
    return fit(column.avro, value)
