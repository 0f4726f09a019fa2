"""A chunk that is an Arrow IPC stream: columns by name in, typed columns and faults out. A row's original is its JSON."""

from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Column
from millrace.model.table import Definition
from millrace.validate.absent import absent_column
from millrace.validate.arrow_columns import as_text, plain, typed_column
from millrace.validate.faults import Fault, Rows, indices
from millrace.validate.parsed import Originals, Parsed, Undecodable, long_keys, missing
from millrace.validate.text import Outcome


def parse_arrow(header: ChunkHeader, body: bytes, definition: Definition) -> Parsed:
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise Undecodable(f"The chunk cannot be read as an Arrow stream: {error}") from error
    return parse_table(table, definition)


def parse_table(table: pa.Table, definition: Definition) -> Parsed:
    """The columns of a table judged by the definition; columns it does not know are ignored."""
    columns, faults = [], []
    for column in definition.columns:
        is_key = column.name in definition.table.primary_key
        if column.name in table.column_names:
            values, found = _typed(column, is_key, table.column(column.name).combine_chunks())
        else:
            values, found = absent_column(column, is_key, table.num_rows)
        columns.append(values)
        faults += found
    return Parsed(columns, None, faults, table.num_rows, lambda rows: Originals(_as_json(table, rows), None))


def _typed(column: Column, is_key: bool, given: pa.Array) -> Outcome:
    faults: list[Fault] = []
    if given.null_count and (is_key or not column.nullable):
        faults.append(missing(column, is_key, indices(pc.is_null(given))))
    values, found = typed_column(column, given)
    return values, faults + found + (long_keys(column, values) if is_key else [])


def _as_json(table: pa.Table, rows: Rows) -> pa.Array:
    picks = pa.array(rows)
    columns = [_showable(plain(column.combine_chunks()).take(picks)) for column in table.columns]
    names = table.column_names
    texts = [orjson.dumps(dict(zip(names, cells, strict=True)), default=_shown) for cells in zip(*columns, strict=True)]
    return pa.array(texts, pa.binary())


def _showable(cells: pa.Array) -> list[Any]:
    try:
        return [_shown(cell) if isinstance(cell, bytes) else cell for cell in cells.to_pylist()]
    except (ValueError, OverflowError):
        # Python's calendar ends with the year 9999 and its text is UTF-8; Arrow's need not be.
        return list(as_text(cells).to_pylist())


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
