"""The Cassandra connector: changes tables in place and writes batches through a window."""

import time
from collections.abc import Sequence
from typing import Any

import cassandra.protocol
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cassandra import ConsistencyLevel, DriverException, InvalidRequest, RequestValidationException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.policies import DCAwareRoundRobinPolicy, HostFilterPolicy, TokenAwarePolicy
from cassandra.protocol import ErrorMessage

from millrace.model.changes import AddColumn, DropColumn, RenameColumn, WidenColumn
from millrace.model.columns import DELETED_COLUMN
from millrace.model.defaults import stored_default
from millrace.model.evolution import path
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.outbound.addresses import Judged
from millrace.sink.cassandra import ddl
from millrace.sink.cassandra.frames import by_partition, cells_of, small_numbers
from millrace.sink.cassandra.settings import CassandraSettings
from millrace.sink.cassandra.window import REQUEST_SECONDS, Window
from millrace.sink.connector import Definitions, Work, usual_fault
from millrace.sink.context import SinkContext

DAY_SECONDS = 86_400


class CassandraSink:
    def __init__(
        self,
        settings: CassandraSettings,
        context: SinkContext,
        permitted: Judged | None = None,
        login: PlainTextAuthProvider | None = None,
    ) -> None:
        """`permitted` and `login`: of a server that the platform itself names."""
        self._settings = settings
        permitted = permitted or context.permitted
        profile = ExecutionProfile(
            consistency_level=getattr(ConsistencyLevel, settings.consistency),
            request_timeout=REQUEST_SECONDS,
            # Nodes that the cluster reports are judged like those that the tenant named.
            load_balancing_policy=HostFilterPolicy(
                TokenAwarePolicy(DCAwareRoundRobinPolicy(settings.local_dc)),
                lambda host: permitted.is_allowed(str(host.address)),
            ),
        )
        self._cluster = Cluster(
            [address for host in settings.hosts for address in permitted(host)],
            port=settings.port,
            auth_provider=login or _login(settings, context),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=10,
        )
        self._session: Session | None = None

    @staticmethod
    def plan(before: Definition | None, after: Definition) -> list[str]:
        known = {one.fingerprint: one for one in (before, after) if one is not None}
        return [ddl.create(after)] if before is None else ddl.alterations(after, path(known.__getitem__, before, after))

    def check(self) -> None:
        self._run("CREATE KEYSPACE IF NOT EXISTS millrace_check WITH replication = " + _map(self._settings.replication))
        self._run("CREATE TABLE IF NOT EXISTS millrace_check.t (k bigint PRIMARY KEY)")
        self._run("INSERT INTO millrace_check.t (k) VALUES (1) USING TIMESTAMP 1")
        self._run("DROP KEYSPACE millrace_check")

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        space = ddl.quoted(ddl.keyspace(definition.tenant, definition.table.key_space))
        self._run(f"CREATE KEYSPACE IF NOT EXISTS {space} WITH replication = {_map(self._settings.replication)}")
        self._run(
            f"CREATE TABLE IF NOT EXISTS {space}.{ddl.META} (name text PRIMARY KEY, definition text, floor bigint)"
        )
        found = self._run(f"SELECT definition FROM {space}.{ddl.META} WHERE name = %s", [definition.table.name])
        before = definitions(found[0].definition) if found and found[0].definition else None
        if before is None or before.generation < definition.generation:
            if before is not None:
                self._run(f"DROP TABLE IF EXISTS {ddl.place(definition)}")
            self._run(ddl.create(definition))
        elif before.revision < definition.revision:
            self._reshape(before, definition, definitions)
        else:
            definition = before
        insert = f"INSERT INTO {space}.{ddl.META} (name, definition) VALUES (%s, %s)"
        self._run(insert, [definition.table.name, definition.fingerprint])
        self._raise_floor(definition, definition.floor)

    def _reshape(self, before: Definition, after: Definition, definitions: Definitions) -> None:
        table = ddl.place(after)
        for change in path(definitions, before, after):
            match change:
                case AddColumn(column):
                    self._run(f"ALTER TABLE {table} ADD IF NOT EXISTS {ddl.quoted(column.name)} {ddl.type_of(column)}")
                    default = stored_default(column)
                    if default is not None:
                        self._fill(after, column.name, default=default)
                case DropColumn(name):
                    self._run(f"ALTER TABLE {table} DROP IF EXISTS {ddl.quoted(name)}")
                case RenameColumn(old, new) if new in after.table.primary_key:
                    self._run(f"ALTER TABLE {table} RENAME IF EXISTS {ddl.quoted(old)} TO {ddl.quoted(new)}")
                case RenameColumn(old, new):
                    column = next(column for column in after.columns if column.name == new)
                    self._run(f"ALTER TABLE {table} ADD IF NOT EXISTS {ddl.quoted(new)} {ddl.type_of(column)}")
                    self._fill(after, new, source=old)
                    self._run(f"ALTER TABLE {table} DROP IF EXISTS {ddl.quoted(old)}")
                case WidenColumn(name, was, becomes) if ddl.type_of(was) != ddl.type_of(becomes):
                    raise SinkFailed(
                        f"Cassandra cannot make {name!r} a {ddl.type_of(becomes)}: it is a {ddl.type_of(was)}.",
                        Fault.TABLE,
                        remedy="Ask for a new generation of the table, or waive this sink.",
                    )

    def _fill(self, definition: Definition, name: str, default: Any = None, source: str | None = None) -> None:
        """Gives existing rows a cell of the new column, under their own versions: that of `source`, or the default."""
        partition, clustering = ddl.key_of(definition)
        keys = [*partition, *clustering]
        wanted = list(dict.fromkeys([*keys, "_version", *([source] if source else [])]))
        statement = self._connected().prepare(
            f"UPDATE {ddl.place(definition)} USING TIMESTAMP ? SET {ddl.quoted(name)} = ? WHERE {ddl.matching(keys)}"
        )
        window = self._window(definition)
        for found in self._run(f"SELECT {ddl.listed(wanted)} FROM {ddl.place(definition)}"):
            row = dict(zip(wanted, found, strict=True))
            value = row[source] if source else default
            window.send_one(statement.bind([row["_version"], value, *(row[key] for key in keys)]))
        window.finish()

    def _raise_floor(self, definition: Definition, floor: int) -> int:
        """The table's floor from now on. If it is raised, rows at or below it are deleted, partition by partition."""
        space = ddl.quoted(ddl.keyspace(definition.tenant, definition.table.key_space))
        found = self._run(f"SELECT floor FROM {space}.{ddl.META} WHERE name = %s", [definition.table.name])
        known = int(found[0].floor or 0) if found else 0
        if floor <= known:
            return known
        partition, _ = ddl.key_of(definition)
        delete = self._connected().prepare(
            f"DELETE FROM {ddl.place(definition)} USING TIMESTAMP ? WHERE {ddl.matching(partition)}"
        )
        window = self._window(definition)
        for key in self._run(f"SELECT DISTINCT {ddl.listed(partition)} FROM {ddl.place(definition)}"):
            window.send_one(delete.bind([floor, *key]))
        window.finish()
        self._run(f"UPDATE {space}.{ddl.META} SET floor = %s WHERE name = %s", [floor, definition.table.name])
        return floor

    def write(self, work: Work) -> None:
        definition = work.definition
        floor = self._raise_floor(definition, work.floor)
        window = self._window(definition)
        for rows in work.rows:
            for batch in rows.open():
                fresh = batch.filter(pc.greater(batch["_version"], floor))
                is_deleted = fresh[DELETED_COLUMN]
                self._upsert(window, definition, fresh.filter(pc.invert(is_deleted)))
                self._delete(window, definition, fresh.filter(is_deleted))
        window.finish()

    def _upsert(self, window: Window, definition: Definition, batch: pa.RecordBatch) -> None:
        days = self._settings.sink_retention_days
        if days:
            batch = batch.filter(pa.array(_seconds_left(batch, days) > 0))
        if not batch.num_rows:
            return
        names, partition = ddl.columns_of(definition), ddl.key_of(definition)[0]
        using = "USING TIMESTAMP ?" + (" AND TTL ?" if days else "")
        marks = ", ".join("?" * len(names))
        statement = self._prepared_statement(
            f"INSERT INTO {ddl.place(definition)} ({ddl.listed(names)}) VALUES ({marks}) {using}"
        )
        order, partitions = by_partition([batch[name] for name in partition])
        batch = batch.take(pa.array(order))
        cells = [cells_of(column) for column in ddl.wire_columns(batch, definition)]
        cells.append(cells[names.index("_version")])
        if days:
            cells.append(small_numbers(_seconds_left(batch, days)))
        window.send(statement.query_id, cells, partitions, [names.index(name) for name in partition])

    def _delete(self, window: Window, definition: Definition, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        partition, clustering = ddl.key_of(definition)
        names, keys = ddl.columns_of(definition), [*partition, *clustering]
        statement = self._prepared_statement(
            f"DELETE FROM {ddl.place(definition)} USING TIMESTAMP ? WHERE {ddl.matching(keys)}"
        )
        order, partitions = by_partition([batch[name] for name in partition])
        columns = ddl.wire_columns(batch.take(pa.array(order)), definition)
        cells = [cells_of(columns[names.index(name)]) for name in ("_version", *keys)]
        window.send(statement.query_id, cells, partitions, list(range(1, len(partition) + 1)))

    def _prepared_statement(self, text: str) -> Any:
        try:
            return self._connected().prepare(text)
        except InvalidRequest as error:
            # No row was sent yet, so the table is the problem.
            raise SinkFailed(f"{error}", Fault.TABLE) from error

    def classify(self, error: BaseException) -> Fault:
        match error:
            case NoHostAvailable() | ConnectionException() | ConnectionBusy():
                return Fault.SINK
            case InvalidRequest():
                return Fault.ROW
            case RequestValidationException() | cassandra.protocol.RequestValidationException():
                return Fault.TABLE
            case DriverException() | ErrorMessage():
                return Fault.SINK
        return usual_fault(error)

    def close(self) -> None:
        self._cluster.shutdown()

    def _connected(self) -> Session:
        if self._session is None:
            self._session = self._cluster.connect()
        return self._session

    def _window(self, definition: Definition) -> Window:
        return Window(self._connected(), ddl.keyspace(definition.tenant, definition.table.key_space))

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> list[Any]:
        return list(self._connected().execute(statement, values))


def _login(settings: CassandraSettings, context: SinkContext) -> PlainTextAuthProvider | None:
    if settings.user is None:
        return None
    return PlainTextAuthProvider(settings.user, context.secret(settings.password) if settings.password else "")


def _seconds_left(batch: pa.RecordBatch, days: int) -> npt.NDArray[np.int64]:
    ages = batch["_version"].to_numpy() // 1_000_000 + days * DAY_SECONDS - int(time.time())
    return np.asarray(ages, dtype=np.int64)


def _map(values: dict[str, Any]) -> str:
    return (
        "{" + ", ".join(f"{ddl.text_literal(name)}: {ddl.text_literal(value)}" for name, value in values.items()) + "}"
    )
