"""Opens the control store: SQLite in WAL mode by default, PostgreSQL by URL."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, create_engine, event, func, inspect, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.schema import Table as SqlTable

from millrace.model.errors import Corrupt
from millrace.store.columns import metadata
from millrace.store.tables import audit

# Marks connections that will write.
_WRITES = "millrace_writes"
WAL_SECONDS = 30.0
_PRIVATE_MODE = 0o600
# Any number that nobody else locks in this database.
_MAKING_TABLES = 0x6D696C6C
_ADD_ONLY = "audit entries are only ever added"
_AUDIT_TRIGGERS = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit BEGIN SELECT RAISE(ABORT, '{_ADD_ONLY}'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_ADD_ONLY}'; END $$",
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()",
    ],
}


class ControlStore:
    """Connections and transactions. SQLite allows one writer: writers of this process queue here, those of another process
    wait in SQLite."""

    def __init__(self, url: str, durable: bool = False) -> None:
        """`durable`: what was committed survives a power cut. PostgreSQL always keeps it."""
        self._engine = _open(url, durable)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        self._writing = threading.RLock()
        with self.write() as connection:
            # The server and the data plane start at the same time: one of them makes the tables.
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_MAKING_TABLES)))
            metadata.create_all(connection)
            _add_indexes(connection)
        _refuse_older(self._engine)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._writing, self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            yield connection

    def rows(self, wanted: Select[Any]) -> list[Row[Any]]:
        """What one statement finds."""
        with self.read() as connection:
            return list(connection.execute(wanted))

    def first(self, wanted: Select[Any]) -> Row[Any] | None:
        with self.read() as connection:
            return connection.execute(wanted).first()

    def close(self) -> None:
        self._engine.dispose()


def _add_indexes(connection: Connection) -> None:
    """Those that a store of an older Millrace lacks. They change nothing but the time that statements take."""
    for table in metadata.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _refuse_older(engine: Engine) -> None:
    """A store that an older Millrace made. What its new columns would have to hold only the log knows."""
    found = inspect(engine)
    known = {name: {column["name"] for column in found.get_columns(name)} for name in metadata.tables}
    missing = {name: set(table.columns.keys()) - known[name] for name, table in metadata.tables.items()}
    lacking = [f"{name} lacks {', '.join(sorted(columns))}" for name, columns in missing.items() if columns]
    if lacking:
        raise Corrupt(
            f"The control store was made by an older Millrace: {'; '.join(lacking)}."[:400],
            remedy="Move it away: the next start makes it anew from the table log, unless kafka.ops_kept_days had old ops "
            "trimmed. Tokens must be made again; what waits for other sinks is lost with the store.",
        )


def insert_new(connection: Connection, table: SqlTable, rows: list[dict[str, Any]]) -> None:
    """Inserts the rows whose key is not there yet."""
    if rows:
        connection.execute(_insert_new(connection.dialect.name, table), rows)


def upsert(
    connection: Connection,
    table: SqlTable,
    rows: dict[str, Any] | list[dict[str, Any]],
    replaced: tuple[str, ...] | None = None,
) -> None:
    """Inserts rows, or replaces those with their keys: the named columns, or else all; a row then names every column."""
    connection.execute(_upsert(connection.dialect.name, table, replaced), rows)


# Built once: making a statement costs more than running it.
@cache
def _upsert(dialect: str, table: SqlTable, replaced: tuple[str, ...] | None) -> Any:
    statement = insert_into(dialect, table)
    keys = [column.name for column in table.primary_key]
    names = replaced or [column.name for column in table.columns if column.name not in keys]
    return statement.on_conflict_do_update(index_elements=keys, set_={name: statement.excluded[name] for name in names})


@cache
def _insert_new(dialect: str, table: SqlTable) -> Any:
    return insert_into(dialect, table).on_conflict_do_nothing()


def insert_into(dialect: str, table: SqlTable) -> Any:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def _open(url: str, durable: bool) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=8, pool_pre_ping=True)
    _make_private(url)
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # NORMAL survives a killed process. Only a power cut can lose the last commits; the log gives them back, except for
        # deliveries that were parked (exchange/queues.py). FULL loses none.
        _use_wal(connection)
        for pragma in (
            f"synchronous={'FULL' if durable else 'NORMAL'}",
            "busy_timeout=30000",
            "wal_autocheckpoint=2000",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once if another process has written in between, and no
        # time-out helps: writers take SQLite's lock before they read.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _make_private(url: str) -> None:
    """Secrets of webhooks and digests of tokens are in it. SQLite gives the files beside it the same rights."""
    path = make_url(url).database
    if path and path != ":memory:":
        for file in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError):
                os.chmod(file, _PRIVATE_MODE)
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT, _PRIVATE_MODE))


def _use_wal(connection: Any) -> None:
    """SQLite fails at once, whatever its time-out, if another process changes the mode of a new file at the same moment."""
    deadline = time.monotonic() + WAL_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@event.listens_for(audit, "after_create")
def _protect(_table: SqlTable, connection: Connection, **_more: object) -> None:
    for statement in _AUDIT_TRIGGERS.get(connection.dialect.name, ()):
        connection.exec_driver_sql(statement)
