"""A connection to a database as the JDBC sink uses it, with any driver: statements in, rows out, batches loaded.

`MysqlLink` speaks the protocol of MySQL and MariaDB itself: rows go out as one LOAD DATA stream."""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pymysql
from pymysql.connections import Connection, MySQLResult

from millrace.model.errors import Unavailable
from millrace.model.sinks import Fault, SinkFailed
from millrace.outbound.addresses import Judged
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.text import to_text, to_values

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 600
PACKET_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Login:
    """Where to connect, and as which user. `tls`: disable, prefer, require or verify."""

    host: str
    port: int
    user: str
    password: str
    permitted: Judged
    tls: str = "prefer"


class Link(Protocol):
    """A driver must be able to run statements; one that has a better way to load rows than these brings it."""

    def run(self, statement: str) -> None: ...

    def ask(self, statement: str) -> list[tuple[Any, ...]]: ...

    def load(self, table: str, columns: Sequence[tuple[str, pa.DataType]], batches: Iterator[pa.RecordBatch]) -> None:
        """Appends plain batches to the table, in statements of a megabyte. `columns` are the original types of the cells."""
        head = f"INSERT INTO {table} ({mysql.listed(name for name, _ in columns)}) VALUES "
        is_coded = [pa.types.is_binary(kind) for _, kind in columns]
        for batch in batches:
            for values in to_values(batch, is_coded):
                self.run(head + values)

    def commit(self) -> None: ...

    def close(self) -> None: ...

    @property
    def is_open(self) -> bool: ...


@contextmanager
def committed(link: Link) -> Iterator[None]:
    """All or nothing: after a failure the link is closed, which rolls everything back."""
    try:
        yield
        link.commit()
    except BaseException:
        link.close()
        raise


class MysqlLink(Link):
    def __init__(self, login: Login) -> None:
        connection: Any = _Connection(
            host=login.host,
            port=login.port,
            user=login.user,
            password=login.password,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=CONNECT_SECONDS,
            write_timeout=STATEMENT_SECONDS,
            local_infile=True,
            ssl=_tls(login.tls),
            ssl_disabled=login.tls == "disable",
            defer_connect=True,
        )
        connection.connect(_connect(login))
        connection._read_timeout = STATEMENT_SECONDS
        self._connection: Any = connection
        for statement in mysql.SESSION:
            self.run(statement)
        self._takes_files = bool(self.ask("SELECT @@GLOBAL.local_infile")[0][0])

    def run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def load(self, table: str, columns: Sequence[tuple[str, pa.DataType]], batches: Iterator[pa.RecordBatch]) -> None:
        if not self._takes_files:
            super().load(table, columns, batches)
            return
        warnings = self._connection.load(mysql.load(table, columns), map(to_text, batches))
        if warnings:
            # During LOAD DATA the server changes values that do not fit, and only warns.
            _, code, message = self.ask("SHOW WARNINGS")[0]
            raise pymysql.err.DataError(code, f"{message} ({warnings} such cells)")

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        if self._connection.open:
            self._connection._force_close()

    @property
    def is_open(self) -> bool:
        return bool(self._connection.open)


class _Connection(Connection):
    """A server may answer any statement by asking for a file of ours. It gets the rows that are being loaded, or nothing."""

    outgoing: Iterator[bytes] | None = None

    def load(self, statement: str, pieces: Iterator[bytes]) -> int:
        """How many warnings there were."""
        self.outgoing = pieces
        try:
            self.query(statement)
            assert self._result is not None
            return int(self._result.warning_count)
        finally:
            self.outgoing = None

    def _read_query_result(self, unbuffered: bool = False) -> int:
        self._result = None
        result = _Result(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return int(result.affected_rows or 0)


class _Result(MySQLResult):
    def _read_load_local_packet(self, _packet: Any) -> None:
        connection: Any = self.connection
        if connection.outgoing is None:
            connection._force_close()
            raise SinkFailed("The server asked for a file of ours.", Fault.SINK, remedy="Do not use this server.")
        for piece in connection.outgoing:
            view = memoryview(piece)
            for at in range(0, len(view), PACKET_BYTES):
                connection.write_packet(bytes(view[at : at + PACKET_BYTES]))
        connection.write_packet(b"")
        result: Any = self
        result._read_ok_packet(connection._read_packet())


def _connect(login: Login) -> socket.socket:
    """To an address that was judged. TLS checks the host's name, not the address."""
    try:
        found = login.permitted.connect(login.host, login.port, CONNECT_SECONDS)
    except OSError as failed:
        raise Unavailable(f"{login.host}:{login.port} takes no connection: {failed}.", code="no_connection") from failed
    found.settimeout(None)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _tls(wish: str) -> ssl.SSLContext | None:
    """With a context the driver refuses a server that does not encrypt. Without one it encrypts if the server can."""
    if wish not in ("require", "verify"):
        return None
    context = ssl.create_default_context()
    if wish == "require":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
