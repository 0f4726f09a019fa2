"""PostgreSQL as a connector: one transaction per delivery, over a connection that is kept."""

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from millrace.model.errors import MillraceError
from millrace.model.evolution import path
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Definitions, Work
from millrace.sink.context import SinkContext
from millrace.sink.postgres.ddl import CHUNKS, META, alter, create, drop, physical, tombstones
from millrace.sink.postgres.rows import RowWriter
from millrace.sink.postgres.settings import PostgresSettings

CONNECT_SECONDS = 10
STATEMENT_MS = 600_000
# Two platforms or workers that prepare the same table take turns.
LOCK = 0x6D696C6C


class PostgresSink:
    def __init__(self, settings: PostgresSettings, context: SinkContext) -> None:
        self._place: dict[str, Any] = {
            "port": settings.port,
            "dbname": settings.database,
            "user": settings.user,
            "sslmode": settings.sslmode,
            "connect_timeout": CONNECT_SECONDS,
            "options": f"-c statement_timeout={STATEMENT_MS} -c timezone=UTC",
        }
        self._host = settings.host
        self._permitted = context.permitted
        if settings.password is not None:
            self._place["password"] = context.secret(settings.password)
        self._connection: psycopg.Connection[Any] | None = None
        self._rows = RowWriter()

    @staticmethod
    def plan(before: Definition | None, after: Definition) -> list[str]:
        known = {one.fingerprint: one for one in (before, after) if one is not None}
        made = _statements(physical(after.tenant), before, after, known.__getitem__)
        return [statement.as_string(None) for statement in made]

    def check(self) -> None:
        with self._connected().transaction(force_rollback=True):
            self._run("CREATE SCHEMA _millrace_check")
            self._run("CREATE TABLE _millrace_check.t (k bigint PRIMARY KEY)")
            self._run("INSERT INTO _millrace_check.t VALUES (1) ON CONFLICT (k) DO NOTHING")

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        schema, table = physical(definition.tenant), definition.table.name
        with self._connected().transaction():
            self._run("SELECT pg_advisory_xact_lock({})", sql.Literal(LOCK))
            meta = self._make_schema(schema)
            found = self._run("SELECT definition FROM {} WHERE name = %s", meta, values=[table]).fetchone()
            before = definitions(found[0]) if found else None
            for statement in _statements(schema, before, definition, definitions):
                self._connected().execute(statement)
            if before is None or before.age < definition.age:
                self._run(
                    "INSERT INTO {} AS there (name, definition, floor) VALUES (%s, %s, %s) ON CONFLICT (name) "
                    "DO UPDATE SET definition = excluded.definition, floor = greatest(there.floor, excluded.floor)",
                    meta,
                    values=[table, definition.fingerprint, definition.floor],
                )

    def _make_schema(self, schema: str) -> sql.Identifier:
        meta, chunks = sql.Identifier(schema, META), sql.Identifier(schema, CHUNKS)
        self._run("CREATE SCHEMA IF NOT EXISTS {}", sql.Identifier(schema))
        columns = "name text PRIMARY KEY, definition text NOT NULL, floor bigint NOT NULL"
        self._run("CREATE TABLE IF NOT EXISTS {} ({})", meta, sql.SQL(columns))
        self._run("CREATE TABLE IF NOT EXISTS {} (name text, chunk text, PRIMARY KEY (name, chunk))", chunks)
        return meta

    def write(self, work: Work) -> None:
        schema = physical(work.definition.tenant)
        with self._connected().transaction():
            floor = self._raise_floor(schema, work.definition, work.floor)
            for rows in work.rows:
                self._rows.write(self._connected(), schema, work.definition, rows, floor)

    def _raise_floor(self, schema: str, definition: Definition, floor: int) -> int:
        """The table's floor from now on. If it is raised, rows and tombstones at or below it are deleted."""
        meta, table = sql.Identifier(schema, META), definition.table.name
        (known,) = self._run("SELECT floor FROM {} WHERE name = %s FOR UPDATE", meta, values=[table]).fetchall()[0]
        if floor > known:
            self._run("UPDATE {} SET floor = %s WHERE name = %s", meta, values=[floor, table])
            for name in (physical(table), *([tombstones(table)] if definition.table.primary_key else [])):
                self._run("DELETE FROM {} WHERE _version <= %s", sql.Identifier(schema, name), values=[floor])
        return max(floor, int(known))

    def classify(self, error: BaseException) -> Fault:
        match error:
            case SinkFailed():
                return error.fault
            case MillraceError():
                return Fault.SINK
            case psycopg.errors.DataError() | psycopg.errors.IntegrityError():
                return Fault.ROW
            case psycopg.OperationalError() | psycopg.InterfaceError() | OSError():
                return Fault.SINK
            case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.InvalidAuthorizationSpecification():
                return Fault.SINK
        return Fault.TABLE

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**self._place, **self._judged(), autocommit=True)
        return self._connection

    def _judged(self) -> dict[str, Any]:
        """The addresses that were judged, and the name that the certificate must have."""
        addresses = self._permitted(self._host)
        return {"host": ",".join([self._host] * len(addresses)), "hostaddr": ",".join(addresses)}

    def _run(
        self, statement: LiteralString, *names: sql.Composable, values: Sequence[Any] | None = None
    ) -> psycopg.Cursor[Any]:
        return self._connected().execute(sql.SQL(statement).format(*names), values)


def _statements(
    schema: str, before: Definition | None, after: Definition, definitions: Definitions
) -> Sequence[sql.Composed]:
    if before is None:
        return create(schema, after)
    if before.age >= after.age:
        return []
    if before.generation < after.generation:
        return [*drop(schema, after.table.name), *create(schema, after)]
    return alter(schema, after, path(definitions, before, after))
