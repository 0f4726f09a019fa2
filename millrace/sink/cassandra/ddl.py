"""A table's definition for Cassandra: keyspace, types, the CREATE statement, and cells as its driver takes them."""

import hashlib
import re
from collections.abc import Iterable

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import Column
from millrace.model.table import Definition
from millrace.sink.encoders.json_cells import json_text

MOST_NAME = 48
META = "millrace_tables"
# Wide enough for every widening that Avro allows: Cassandra cannot change the type of a column.
_TYPES = {
    pa.bool_(): "boolean",
    pa.int32(): "bigint",
    pa.int64(): "bigint",
    pa.float32(): "double",
    pa.float64(): "double",
    pa.string(): "text",
    pa.binary(): "blob",
    pa.date32(): "date",
}
OWN = ("_version", "_import", "_row")


def keyspace(tenant: str, key_space: str | None) -> str:
    """The tenant's own keyspace: two tenants that choose the same name get different keyspaces."""
    named = f"{tenant}/{key_space or 'default'}"
    readable = re.sub(r"[^a-z0-9_]", "_", named.lower().replace("/", "_"))
    return f"{readable[: MOST_NAME - 11]}_{hashlib.blake2b(named.encode(), digest_size=5).hexdigest()}"


def table_name(table: str) -> str:
    readable = re.sub(r"\W", "_", table)
    if readable == table and len(table) <= MOST_NAME:
        return table
    return f"{readable[: MOST_NAME - 11]}_{hashlib.blake2b(table.encode(), digest_size=5).hexdigest()}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def matching(key: Iterable[str]) -> str:
    return " AND ".join(f"{quoted(name)} = ?" for name in key)


def text_literal(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def place(definition: Definition) -> str:
    table = definition.table
    return f"{quoted(keyspace(definition.tenant, table.key_space))}.{quoted(table_name(table.name))}"


def type_of(column: Column) -> str:
    if arrow_type(column) in _TYPES:
        return _TYPES[arrow_type(column)]
    if pa.types.is_timestamp(arrow_type(column)):
        # Cassandra's timestamp has milliseconds. Finer ones are stored as microseconds since 1970.
        return "timestamp" if column.logical == "timestamp-millis" else "bigint"
    return "decimal" if pa.types.is_decimal(arrow_type(column)) else "text"


def key_of(definition: Definition) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Partition and clustering columns. Rows without a key are identified by their place in their import."""
    table = definition.table
    if not table.primary_key:
        return ("_import", "_version"), ("_row",)
    partition = table.partition_key or table.primary_key[:1]
    return partition, tuple(name for name in table.primary_key if name not in partition)


def create(definition: Definition) -> str:
    partition, clustering = key_of(definition)
    columns = [f"{quoted(column.name)} {type_of(column)}" for column in definition.columns]
    columns += ['"_version" bigint', '"_import" text', '"_row" bigint']
    key = ", ".join([f"({listed(partition)})", *map(quoted, clustering)])
    return f"CREATE TABLE IF NOT EXISTS {place(definition)} ({', '.join(columns)}, PRIMARY KEY ({key}))"


def alterations(definition: Definition, changes: Iterable[Change]) -> list[str]:
    """The statements that change the table, without those that fill new columns."""
    table, columns = f"ALTER TABLE {place(definition)}", {column.name: column for column in definition.columns}
    made = []
    for change in changes:
        match change:
            case AddColumn(column):
                made.append(f"{table} ADD {quoted(column.name)} {type_of(column)}")
            case DropColumn(name):
                made.append(f"{table} DROP {quoted(name)}")
            case RenameColumn(old, new) if new in definition.table.primary_key:
                made.append(f"{table} RENAME {quoted(old)} TO {quoted(new)}")
            case RenameColumn(old, new):
                made += [f"{table} ADD {quoted(new)} {type_of(columns[new])}", f"{table} DROP {quoted(old)}"]
            case WidenColumn(name, was, becomes) if type_of(was) != type_of(becomes):
                made.append(
                    f"{table}: {quoted(name)} cannot become {type_of(becomes)}; rows will wait for a new generation"
                )
    return made


def columns_of(definition: Definition) -> list[str]:
    return [column.name for column in definition.columns] + list(OWN)


def wire_columns(batch: pa.RecordBatch, definition: Definition) -> list[pa.Array]:
    """The batch's columns as the table keeps them, in the order of `columns_of`."""
    return [*(_kept(batch[column.name], column) for column in definition.columns), *(batch[name] for name in OWN)]


def _kept(cells: pa.Array, column: Column) -> pa.Array:
    if type_of(column) == "timestamp":
        return cells.cast(pa.timestamp("ms", cells.type.tz), safe=False)
    return json_text(cells).cast(pa.binary()) if pa.types.is_nested(arrow_type(column)) else cells
