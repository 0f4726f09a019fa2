"""A chunk that is an Arrow IPC stream: columns by name in, typed columns and faults out. A row's original is its JSON."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.matching import unknown
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN, Column
from millrace.model.fields import assigned
from millrace.validate.arrow_columns import as_text, plain, typed_column
from millrace.validate.blanks import has_blanks, without_blanks
from millrace.validate.cells import without_broken_text
from millrace.validate.faults import RowFault, Rows, indices
from millrace.validate.parsed import Originals, Parsed, Reading, Undecodable, long_keys, missing, typed_columns
from millrace.validate.rescue import arrow_parts, rescued
from millrace.validate.text import Outcome


def parse_arrow(header: ChunkHeader, body: bytes, reading: Reading) -> Parsed:
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise Undecodable(f"The chunk cannot be read as an Arrow stream: {error}") from error
    parts, faults = {}, []
    for name in unknown(table.column_names, reading.columns) if reading.rescues else []:
        parts[name], found = arrow_parts(name, table.column(name).combine_chunks())
        faults += found
    parsed = parse_table(table, reading, parts)
    return replace(parsed, faults=parsed.faults + faults)


def parse_table(table: pa.Table, reading: Reading, others: Mapping[str, pa.Array]) -> Parsed:
    """Judges the columns of a table. `others` are the columns to rescue, as JSON text."""
    names = assigned(table.column_names, reading.columns)
    columns, faults = typed_columns(reading, names, table.num_rows, partial(_typed, table))
    marks = _marks(table) if reading.marked and DELETED_COLUMN in table.column_names else None
    kept = rescued(others, table.num_rows) if reading.rescues else None

    def originals(rows: Rows) -> Originals:
        return Originals(_as_json(table, others, rows), None)

    return Parsed(columns, None, faults, table.num_rows, originals, marks, kept)


def _marks(table: pa.Table) -> pa.Array:
    cells = plain(table.column(DELETED_COLUMN).combine_chunks())
    return cells.view(pa.string()) if pa.types.is_binary(cells.type) else as_text(cells)


def _typed(table: pa.Table, column: Column, is_key: bool, name: str) -> Outcome:
    given = table.column(name).combine_chunks()
    broken: list[RowFault] = []
    if has_blanks(column):
        given, broken = _without_blanks(column, plain(given))
    faults = []
    if given.null_count and (is_key or not column.nullable):
        absent = indices(pc.is_null(given))
        for fault in broken:
            absent = np.setdiff1d(absent, fault.rows)
        faults = [missing(column, is_key, absent)] if len(absent) else []
    values, found = typed_column(column, given)
    return values, broken + faults + found + (long_keys(column, values) if is_key else [])


def _without_blanks(column: Column, given: pa.Array) -> Outcome:
    if not pa.types.is_binary(given.type):
        return given, []
    cells, broken = without_broken_text(column, given)
    return without_blanks(column, cells), broken


def _as_json(table: pa.Table, others: Mapping[str, pa.Array], rows: Rows) -> pa.Array:
    picks = pa.array(rows)
    columns = {
        name: _showable(plain(column.combine_chunks()).take(picks))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    for name in others.keys() - columns.keys():
        columns[name] = [text and orjson.Fragment(text) for text in others[name].take(picks).to_pylist()]
    texts = [
        orjson.dumps(dict(zip(columns, cells, strict=True)), default=_shown)
        for cells in zip(*columns.values(), strict=True)
    ]
    return pa.array(texts, pa.binary())


def _showable(cells: pa.Array) -> list[Any]:
    try:
        return [_shown(cell) if isinstance(cell, bytes) else cell for cell in cells.to_pylist()]
    except (ValueError, OverflowError):
        # Arrow may hold years after 9999 and text that is not UTF-8. Python cannot.
        return list(as_text(cells).to_pylist())


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
