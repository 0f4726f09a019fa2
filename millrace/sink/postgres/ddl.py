"""A table's definition in PostgreSQL's words: names, types, and the statements that make or change the table."""

import hashlib
from collections.abc import Iterable

import pyarrow as pa
from psycopg import sql

from millrace.arrow.types import arrow_type
from millrace.model.changes import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import Column
from millrace.model.defaults import stored_default
from millrace.model.table import Definition
from millrace.sink.encoders.arrow_text import to_csv

MOST_NAME_BYTES = 63
OWN = (("_version", "bigint"), ("_import", "text"), ("_row", "bigint"))
META, CHUNKS = "_millrace_tables", "_millrace_chunks"

_TYPES = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}


def physical(name: str) -> str:
    """The name as PostgreSQL keeps it. A longer name is cut and gets a digest."""
    if len(name.encode()) <= MOST_NAME_BYTES:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
    return name.encode()[: MOST_NAME_BYTES - 13].decode(errors="ignore") + "_" + digest


def identifier(name: str) -> sql.Identifier:
    return sql.Identifier(physical(name))


def tombstones(table: str) -> str:
    return physical(f"{table}__deleted")


def type_of(kind: pa.DataType) -> sql.SQL:
    if kind in _TYPES:
        return sql.SQL(_TYPES[kind])
    if pa.types.is_timestamp(kind):
        return sql.SQL("timestamptz" if kind.tz else "timestamp")
    if pa.types.is_decimal(kind):
        return sql.SQL(f"numeric({kind.precision},{kind.scale})")
    return sql.SQL("jsonb" if pa.types.is_nested(kind) else "text")


def create(schema: str, definition: Definition) -> list[sql.Composed]:
    name, key = definition.table.name, definition.table.primary_key
    columns = [sql.SQL("{} {}").format(identifier(c.name), type_of(arrow_type(c))) for c in definition.columns]
    columns += [sql.SQL("{} {}").format(sql.Identifier(own), sql.SQL(kind)) for own, kind in OWN]
    if key:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(_names(key)))
    made = [sql.SQL("CREATE TABLE {} ({})").format(_table(schema, name), sql.SQL(", ").join(columns))]
    if key:
        by_name = {column.name: column for column in definition.columns}
        keys = [sql.SQL("{} {}").format(identifier(one), type_of(arrow_type(by_name[one]))) for one in key]
        made.append(
            sql.SQL("CREATE TABLE {} ({}, _version bigint NOT NULL, PRIMARY KEY ({}))").format(
                _table(schema, tombstones(name)), sql.SQL(", ").join(keys), _names(key)
            )
        )
    return made


def drop(schema: str, table: str) -> list[sql.Composed]:
    return [sql.SQL("DROP TABLE IF EXISTS {}").format(_table(schema, name)) for name in (table, tombstones(table))]


def alter(schema: str, definition: Definition, changes: Iterable[Change]) -> list[sql.Composed]:
    """Existing rows get the default of an added column. Later rows bring their own value."""
    name, key = definition.table.name, definition.table.primary_key
    table, made = _table(schema, name), []
    for change in changes:
        match change:
            case AddColumn(column):
                made += _add(table, column)
            case DropColumn(column_name):
                made.append(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(table, identifier(column_name)))
            case RenameColumn(old, new):
                made.append(
                    sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, identifier(old), identifier(new))
                )
                if new in key:
                    made.append(
                        sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(
                            _table(schema, tombstones(name)), identifier(old), identifier(new)
                        )
                    )
            case WidenColumn(column_name, before, after) if type_of(arrow_type(before)) != type_of(arrow_type(after)):
                made.append(_widen(table, column_name, after))
                if column_name in key:
                    made.append(_widen(_table(schema, tombstones(name)), column_name, after))
    return made


def _add(table: sql.Identifier, column: Column) -> list[sql.Composed]:
    name, kind = identifier(column.name), type_of(arrow_type(column))
    default = stored_default(column)
    if default is None:
        return [sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(table, name, kind)]
    text = (
        bytes(to_csv(pa.record_batch([pa.array([default], arrow_type(column))], names=["value"]))).decode().rstrip("\n")
    )
    unquoted = text[1:-1].replace('""', '"') if text.startswith('"') else text
    added = sql.SQL("ALTER TABLE {} ADD COLUMN {} {} DEFAULT {}").format(table, name, kind, sql.Literal(unquoted))
    return [added, sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT").format(table, name)]


def _widen(table: sql.Identifier, name: str, after: Column) -> sql.Composed:
    kind = type_of(arrow_type(after))
    using = sql.SQL("convert_from({0}, 'UTF8')") if after.kind == "string" else sql.SQL("{0}::{1}")
    if after.kind == "bytes":
        using = sql.SQL("convert_to({0}, 'UTF8')")
    return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {} USING ").format(
        table, identifier(name), kind
    ) + using.format(identifier(name), kind)


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join([identifier(name) for name in names])


def _table(schema: str, table: str) -> sql.Identifier:
    return sql.Identifier(schema, physical(table))
