"""Rows into a PostgreSQL table, in the caller's transaction: appended once, or by key if their version is greater."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from millrace.model.table import Definition
from millrace.sink.connector import Rows, fresh
from millrace.sink.encoders.arrow_text import to_csv
from millrace.sink.encoders.key_order import in_key_order
from millrace.sink.postgres.ddl import CHUNKS, OWN, identifier, listed, physical, tombstones

STAGING = "_millrace_staging"
Connection = psycopg.Connection[Any]


class RowWriter:
    def __init__(self) -> None:
        # Tables in which a key came again. There, an existing row is looked up before one is written.
        self._met_twice: set[tuple[str, str]] = set()

    def write(self, connection: Connection, schema: str, definition: Definition, rows: Rows, floor: int) -> None:
        """Rows at or below the floor are left out."""
        if definition.table.primary_key:
            self._upsert(connection, schema, definition, rows, floor)
        else:
            _append(connection, schema, definition, rows, floor)

    def _upsert(self, connection: Connection, schema: str, definition: Definition, rows: Rows, floor: int) -> None:
        place = _KeyedTable.of(schema, definition)
        deleted: list[pa.RecordBatch] = []
        if not self._copy_new(connection, (schema, definition.table.name), place, rows, floor, deleted):
            deleted.clear()
            _merge(connection, place, in_key_order(_split(rows, floor, deleted), place.key))
        if deleted:
            _delete(connection, place, deleted)

    def _copy_new(
        self,
        connection: Connection,
        name: tuple[str, str],
        place: "_KeyedTable",
        rows: Rows,
        floor: int,
        deleted: list[pa.RecordBatch],
    ) -> bool:
        """Copies straight into the table, as long as no key came twice and nothing was deleted. Returns False, and changes
        nothing, if a key came again."""
        has_graves = sql.SQL("SELECT 1 FROM {} LIMIT 1").format(place.graves)
        if name in self._met_twice or connection.execute(has_graves).fetchone() is not None:
            return False
        try:
            with connection.transaction():
                _copy(connection, place.table, place.names, in_key_order(_split(rows, floor, deleted), place.key))
            return True
        except psycopg.errors.UniqueViolation:
            self._met_twice.add(name)
            return False


@dataclass(frozen=True, slots=True)
class _KeyedTable:
    """A table with a key, and the table beside it that holds tombstones."""

    table: sql.Identifier
    graves: sql.Identifier
    key: tuple[str, ...]
    names: list[str]

    @staticmethod
    def of(schema: str, definition: Definition) -> "_KeyedTable":
        name = definition.table.name
        table, graves = sql.Identifier(schema, physical(name)), sql.Identifier(schema, tombstones(name))
        return _KeyedTable(table, graves, definition.table.primary_key, _names(definition))


def _merge(connection: Connection, place: _KeyedTable, batches: Iterator[pa.RecordBatch]) -> None:
    _stage(connection, place.table, place.names, batches)
    changed = sql.SQL(", ").join(
        [sql.SQL("{0} = excluded.{0}").format(identifier(name)) for name in place.names if name not in place.key]
    )
    statement = sql.SQL(
        "INSERT INTO {table} AS there ({columns}) SELECT {columns} FROM {staging} AS new WHERE NOT EXISTS "
        "(SELECT 1 FROM {graves} AS gone WHERE {same} AND gone._version >= new._version) "
        "ON CONFLICT ({keys}) DO UPDATE SET {changed} WHERE excluded._version > there._version"
    ).format(
        table=place.table,
        columns=listed(place.names),
        staging=sql.Identifier(STAGING),
        graves=place.graves,
        same=_same(place.key, "gone", "new"),
        keys=listed(place.key),
        changed=changed,
    )
    connection.execute(statement)
    connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(STAGING)))


def _delete(connection: Connection, place: _KeyedTable, deletes: list[pa.RecordBatch]) -> None:
    names, staging = [*place.key, "_version"], sql.Identifier(STAGING)
    _stage(connection, place.graves, names, iter(deletes))
    gone = sql.SQL("DELETE FROM {} AS there USING {} AS gone WHERE {} AND there._version <= gone._version")
    connection.execute(gone.format(place.table, staging, _same(place.key, "there", "gone")))
    remembered = sql.SQL(
        "INSERT INTO {graves} AS there ({columns}) SELECT {columns} FROM {staging} ON CONFLICT ({keys}) "
        "DO UPDATE SET _version = excluded._version WHERE excluded._version > there._version"
    )
    connection.execute(
        remembered.format(graves=place.graves, columns=listed(names), staging=staging, keys=listed(place.key))
    )
    connection.execute(sql.SQL("DROP TABLE {}").format(staging))


def _append(connection: Connection, schema: str, definition: Definition, rows: Rows, floor: int) -> None:
    """Each chunk once: a chunk is recorded in the transaction that writes its rows."""
    chunks, name = sql.Identifier(schema, CHUNKS), definition.table.name
    question = sql.SQL("SELECT chunk FROM {} WHERE name = %s AND chunk = ANY(%s)").format(chunks)
    known = {row[0] for row in connection.execute(question, [name, list(rows.chunks)])}
    new = rows.without(known)
    if not new.chunks:
        return
    batches = (fresh(batch, floor) for batch in new.open())
    _copy(connection, sql.Identifier(schema, physical(name)), _names(definition), batches)
    recorded = sql.SQL("INSERT INTO {} (name, chunk) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING")
    connection.execute(recorded.format(chunks), [name, list(new.chunks)])


def _stage(
    connection: Connection, like: sql.Identifier, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> None:
    made = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false")
    connection.execute(made.format(sql.Identifier(STAGING), listed(names), like))
    _copy(connection, sql.Identifier(STAGING), names, batches)


def _copy(
    connection: Connection, table: sql.Identifier, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, listed(names))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in batches:
            if batch.num_rows:
                copy.write(to_csv(batch.select(list(names))))


def _names(definition: Definition) -> list[str]:
    return [column.name for column in definition.columns] + [own for own, _ in OWN]


def _split(rows: Rows, floor: int, deleted: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows to write, and sets the deletes aside."""
    for batch in rows.open():
        gone = fresh(batch, floor, is_deleted=True)
        if gone.num_rows:
            deleted.append(gone)
        yield fresh(batch, floor)


def _same(key: Sequence[str], left: str, right: str) -> sql.Composed:
    pairs = [(sql.Identifier(left, physical(name)), sql.Identifier(right, physical(name))) for name in key]
    return sql.SQL(" AND ").join([sql.SQL("{} = {}").format(*pair) for pair in pairs])
