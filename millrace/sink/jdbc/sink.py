"""The JDBC connector: databases that speak the dialect of MySQL and MariaDB, with any driver."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from millrace.arrow.types import arrow_type
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Definitions, Rows, Work, fresh
from millrace.sink.context import SinkContext
from millrace.sink.jdbc import mysql
from millrace.sink.jdbc.drivers import opener
from millrace.sink.jdbc.faults import fault_of
from millrace.sink.jdbc.link import Link, Login, committed
from millrace.sink.jdbc.settings import JdbcSinkSettings
from millrace.sink.jdbc.shape import MARK, shape
from millrace.sink.jdbc.text import not_finite, plain


class JdbcSink:
    def __init__(self, settings: JdbcSinkSettings, context: SinkContext) -> None:
        self._base = settings.database
        self._login = Login(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=context.secret(settings.password) if settings.password else "",
            permitted=context.permitted,
            tls=settings.tls,
        )
        self._open = opener(settings.driver, context.jdbc_drivers)
        self._link: Link | None = None

    def check(self) -> None:
        link = self._connected()
        name = mysql.quoted(mysql.database(self._base, "_check"))
        with self._alone(link):
            try:
                link.run(f"CREATE DATABASE IF NOT EXISTS {name}")
                link.run(f"CREATE TABLE {name}.t (k BIGINT PRIMARY KEY, v BIGINT)")
                link.run(f"CREATE TEMPORARY TABLE {name}.s (k BIGINT, v BIGINT)")
                columns = [("k", pa.int64()), ("v", pa.int64())]
                link.load(f"{name}.s", columns, iter([pa.RecordBatch.from_pydict({"k": [1], "v": [1]})]))
                link.run(f"INSERT INTO {name}.t SELECT k, v FROM {name}.s AS new ON DUPLICATE KEY UPDATE v = new.v")
                link.run(f"DROP TEMPORARY TABLE {name}.s")
                link.commit()
            finally:
                if link.is_open:
                    link.run(f"DROP DATABASE IF EXISTS {name}")

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        link = self._connected()
        place = mysql.TablePlace(self._base, definition)
        with self._alone(link):
            shape(link, place, definition, definitions)
            link.run(
                f"INSERT INTO {place.meta} (name, floor) VALUES ({mysql.literal(place.name)}, {definition.floor}) "
                "ON DUPLICATE KEY UPDATE floor = GREATEST(floor, VALUES(floor))"
            )
            link.commit()

    def write(self, work: Work) -> None:
        link = self._connected()
        place = mysql.TablePlace(self._base, work.definition)
        with committed(link):
            link.run(f"USE {mysql.quoted(place.database)}")
            floor = _raise_floor(link, place, work)
            for rows in work.rows:
                if work.definition.table.primary_key:
                    _upsert(link, place, work.definition, rows, floor)
                else:
                    _append(link, place, work.definition, rows, floor)

    def classify(self, error: BaseException) -> Fault:
        return fault_of(error)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()

    def _connected(self) -> Link:
        if self._link is None or not self._link.is_open:
            self._link = self._open(self._login)
        return self._link

    @contextmanager
    def _alone(self, link: Link) -> Iterator[None]:
        """Two platforms or workers that change tables of one server take turns."""
        name = mysql.literal(f"{MARK} {self._base}"[: mysql.MOST_NAME])
        if link.ask(f"SELECT GET_LOCK({name}, {mysql.LOCK_SECONDS})")[0][0] != 1:
            raise SinkFailed("Somebody else is changing tables there.", Fault.SINK)
        try:
            yield
        except BaseException:
            # Closing the link releases the lock, too.
            link.close()
            raise
        link.run(f"DO RELEASE_LOCK({name})")


def _raise_floor(link: Link, place: mysql.TablePlace, work: Work) -> int:
    """The table's floor from now on. If it is raised, rows at or below it are deleted."""
    name = mysql.literal(place.name)
    known = int(link.ask(f"SELECT floor FROM {place.meta} WHERE name = {name} FOR UPDATE")[0][0])
    if work.floor <= known:
        return known
    link.run(f"UPDATE {place.meta} SET floor = {work.floor} WHERE name = {name}")
    for table in (place.rows, place.graves) if work.definition.table.primary_key else (place.rows,):
        link.run(f'DELETE FROM {table} WHERE "_version" <= {work.floor}')
    return work.floor


def _upsert(link: Link, place: mysql.TablePlace, definition: Definition, rows: Rows, floor: int) -> None:
    key = definition.table.primary_key
    batches = (fresh(batch, floor) for batch in rows.open())
    with _staged(link, place, mysql.stored_columns(definition), definition, batches):
        link.run(mysql.upsert(place, definition))
    deletes = [batch for batch in (fresh(batch, floor, is_deleted=True) for batch in rows.open()) if batch.num_rows]
    if deletes:
        with _staged(link, place, mysql.key_columns(definition), definition, iter(deletes)):
            for statement in mysql.delete(place, key):
                link.run(statement)


def _append(link: Link, place: mysql.TablePlace, definition: Definition, rows: Rows, floor: int) -> None:
    """Each chunk once: a chunk is recorded in the transaction that writes its rows."""
    if not rows.chunks:
        return
    name, wanted = mysql.literal(place.name), ", ".join(map(mysql.literal, rows.chunks))
    known = {
        row[0] for row in link.ask(f"SELECT chunk FROM {place.chunks} WHERE name = {name} AND chunk IN ({wanted})")
    }
    new = rows.without(known)
    if not new.chunks:
        return
    batches = (fresh(batch, floor) for batch in new.open())
    _load(link, place.rows, mysql.stored_columns(definition), definition, batches)
    values = ", ".join(f"({name}, {mysql.literal(chunk)})" for chunk in new.chunks)
    link.run(f"INSERT INTO {place.chunks} (name, chunk) VALUES {values}")


@contextmanager
def _staged(
    link: Link,
    place: mysql.TablePlace,
    columns: dict[str, str],
    definition: Definition,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[None]:
    link.run(mysql.create_staging(place, columns))
    _load(link, place.staging, columns, definition, batches)
    yield
    link.run(f"DROP TEMPORARY TABLE {place.staging}")


def _load(
    link: Link, table: str, columns: dict[str, str], definition: Definition, batches: Iterator[pa.RecordBatch]
) -> None:
    kinds = {column.name: arrow_type(column) for column in definition.columns}
    described = [(name, kinds.get(name, pa.string())) for name in columns]
    key = definition.table.primary_key

    def shaped(batch: pa.RecordBatch) -> pa.RecordBatch:
        cells = [not_finite(batch, key) if name == mysql.NOT_FINITE else plain(batch[name]) for name in columns]
        return pa.RecordBatch.from_arrays(cells, names=list(columns))

    link.load(table, described, (shaped(batch) for batch in batches if batch.num_rows))
