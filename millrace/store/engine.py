"""Opens the control store: SQLite in WAL mode by default, PostgreSQL by URL."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.schema import Table as SqlTable

from millrace.store.tables import metadata


class Store:
    """Connections and transactions. SQLite allows one writer: writers of this process queue here, not in busy waits."""

    def __init__(self, url: str) -> None:
        self._engine = _open(url)
        self._writing = threading.RLock()
        metadata.create_all(self._engine)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._writing, self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            yield connection

    def close(self) -> None:
        self._engine.dispose()


def insert_new(connection: Connection, table: SqlTable, rows: list[dict[str, Any]]) -> None:
    """Inserts the rows whose key is not there yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def upsert(connection: Connection, table: SqlTable, row: dict[str, Any]) -> None:
    keys = [column.name for column in table.primary_key]
    statement = _insert(connection, table).values(row)
    changed = {name: value for name, value in row.items() if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))


def _insert(connection: Connection, table: SqlTable) -> Any:
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement: Insert = dialect.insert(table)
    return statement


def _open(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=8, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        # NORMAL survives a killed process; only a power cut can lose the last commits, and the log gives them back.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "wal_autocheckpoint=2000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine
