"""The parsed chunk and its rejected rows in, the accepted rows as they are stored out.

If some rows delete their key, the last column marks them. Of these only the key is kept."""

import numpy as np
import pyarrow as pa

from millrace.arrow.types import arrow_type, stored_schema
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import DELETED_COLUMN
from millrace.model.table import Definition
from millrace.validate.deletes import Flags
from millrace.validate.faults import Rows
from millrace.validate.parsed import Parsed, Reading


def numbered(header: ChunkHeader, rows: Rows) -> Rows:
    """The numbers that some rows of the chunk have in the uploaded file."""
    if header.row_numbers is None:
        return rows + header.first_row
    return np.array(header.row_numbers, np.int64)[rows]


def accepted_rows(
    header: ChunkHeader,
    parsed: Parsed,
    reading: Reading,
    definition: Definition,
    bad: Rows | None,
    deleted: Flags | None,
) -> pa.Table:
    positions = np.arange(parsed.rows, dtype=np.int64) if parsed.positions is None else parsed.positions
    names = [column.name for column in definition.columns]
    columns = pa.table(_columns(parsed, reading, definition, len(positions)), names)
    if bad is not None:
        good = np.ones(parsed.rows, bool)
        good[bad] = False
        kept = good[positions]
        positions = positions[kept]
        columns = columns.filter(pa.array(kept))
        deleted = None if deleted is None else deleted[kept]
    own = [
        pa.repeat(pa.scalar(header.version, pa.int64()), len(positions)),
        pa.repeat(pa.scalar(header.import_id), len(positions)),
        pa.array(numbered(header, positions)),
    ]
    if deleted is None or not deleted.any():
        return pa.table([*columns.columns, *own], schema=stored_schema(definition.columns))
    kept_keys = _keys_alone(columns, reading.keys, deleted)
    return pa.table([*kept_keys, *own, pa.array(deleted)], schema=_schema_with_deletes(definition))


def _columns(parsed: Parsed, reading: Reading, definition: Definition, entries: int) -> list[pa.Array]:
    found = [*parsed.columns] if parsed.rescued is None else [*parsed.columns, parsed.rescued]
    if len(found) == len(definition.columns):
        return found
    by_name = dict(zip((column.name for column in reading.columns), parsed.columns, strict=True))
    return [by_name.get(column.name, pa.nulls(entries, arrow_type(column))) for column in definition.columns]


def _keys_alone(columns: pa.Table, keys: tuple[str, ...], deleted: Flags) -> list[pa.ChunkedArray]:
    upserts = pa.array(np.arange(len(deleted)), mask=deleted)
    return [
        column if name in keys else column.take(upserts)
        for name, column in zip(columns.column_names, columns.columns, strict=True)
    ]


def _schema_with_deletes(definition: Definition) -> pa.Schema:
    keys = definition.table.primary_key
    declared, own = stored_schema(definition.columns), len(definition.columns)
    fields = [
        field.with_nullable(field.nullable or (at < own and field.name not in keys))
        for at, field in enumerate(declared)
    ]
    return pa.schema([*fields, pa.field(DELETED_COLUMN, pa.bool_(), False)])
