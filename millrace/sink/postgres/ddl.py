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
from millrace.sink.encoders.arrow_text import cell_text

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
    if not key:
        return [sql.SQL("CREATE TABLE {} ({})").format(_table(schema, name), sql.SQL(", ").join(columns))]
    kinds = {column.name: type_of(arrow_type(column)) for column in definition.columns}
    graves = [sql.SQL("{} {}").format(identifier(one), kinds[one]) for one in key]
    graves.append(sql.SQL("_version bigint NOT NULL").format())
    return [
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            _table(schema, table), sql.SQL(", ").join(held), listed(key)
        )
        for table, held in ((name, columns), (tombstones(name), graves))
    ]


def drop(schema: str, table: str) -> list[sql.Composed]:
    return [sql.SQL("DROP TABLE IF EXISTS {}").format(_table(schema, name)) for name in (table, tombstones(table))]


def alter(schema: str, definition: Definition, changes: Iterable[Change]) -> list[sql.Composed]:
    """Existing rows get the default of an added column. Later rows bring their own value."""
    name, made = definition.table.name, []
    table, graves = _table(schema, name), _table(schema, tombstones(name))

    def holders(column: str) -> list[sql.Identifier]:
        return [table, graves] if column in definition.table.primary_key else [table]

    for change in changes:
        match change:
            case AddColumn(column):
                made += _add(table, column)
            case DropColumn(column_name):
                made.append(sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(table, identifier(column_name)))
            case RenameColumn(old, new):
                renamed = sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
                made += [renamed.format(one, identifier(old), identifier(new)) for one in holders(new)]
            case WidenColumn(column_name, before, after) if type_of(arrow_type(before)) != type_of(arrow_type(after)):
                made += [_widen(one, column_name, after) for one in holders(column_name)]
    return made


def _add(table: sql.Identifier, column: Column) -> list[sql.Composed]:
    name, kind = identifier(column.name), type_of(arrow_type(column))
    default = stored_default(column)
    if default is None:
        return [sql.SQL("ALTER TABLE {} ADD COLUMN {} {}").format(table, name, kind)]
    text = sql.Literal(cell_text(default, arrow_type(column)))
    added = sql.SQL("ALTER TABLE {} ADD COLUMN {} {} DEFAULT {}").format(table, name, kind, text)
    return [added, sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP DEFAULT").format(table, name)]


def _widen(table: sql.Identifier, name: str, after: Column) -> sql.Composed:
    kind = type_of(arrow_type(after))
    using = sql.SQL("convert_from({0}, 'UTF8')") if after.kind == "string" else sql.SQL("{0}::{1}")
    if after.kind == "bytes":
        using = sql.SQL("convert_to({0}, 'UTF8')")
    return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {} USING ").format(
        table, identifier(name), kind
    ) + using.format(identifier(name), kind)


def listed(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join([identifier(name) for name in names])


def _table(schema: str, table: str) -> sql.Identifier:
    return sql.Identifier(schema, physical(table))
