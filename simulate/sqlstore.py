"""The same world on the real control store: SQLite in memory, the platform's own SQL for ops, facts, positions and effects.

Slower by an order of magnitude; it shows that what an op can see there is all that its rules need."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import IntegrityError

from millrace.account import ledger
from millrace.control import entities
from millrace.control.outbox import Kept
from millrace.control.state import Announce, Close, Send, State, StoreDefinition, Table, Tenant
from millrace.control.working_set import WorkingSet
from millrace.model.chunk import ChunkVerdict
from millrace.model.errors import Clash
from millrace.model.facts import Fact
from millrace.model.imports import Import
from millrace.model.ops import Applied, Op
from millrace.model.ops.results import Refusal
from millrace.model.table import Definition
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import advance, positions, to_import
from millrace.wire.envelope import unpack_stamp
from simulate.content import Chunk, Row
from simulate.logs import OPS, PROGRESS
from simulate.memory import Event, Memory, SecondReader
from simulate.stored_results import decode_result

Contents = Mapping[bytes, tuple[Row, ...]]
_EVENT_PREFIX = "millrace."


class SqlTransaction:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._kept = Kept()
        self._working = WorkingSet(connection)

    def load(self, op: Op[Any]) -> State:
        return entities.load(self._working, op)

    def save(self, before: State, after: State, at_us: int) -> None:
        entities.save(self._working, before, after, at_us)
        changed = [imp for imp in after.imports.values() if imp is not before.imports.get(imp.id)]
        self._kept.over += [imp.id for imp in changed if imp.is_over]

    def keep(self, number: int, op: Op[Any], effect: Announce | Close | StoreDefinition | Send, at_us: int) -> None:
        self._kept.keep(effect, op, number, at_us)

    def answered(self, asked: Op[Any], answer: Applied) -> None:
        self._kept.requests[asked.id] = {
            "id": asked.id,
            "kind": asked.kind,
            "tenant": asked.tenant,
            "subject": asked.subject,
            "requested_us": 0,
            "applied": not answer.is_waiting,
            "result": answer.result.to_dict(),
            "refusal": None if answer.refusal is None else answer.refusal.to_dict(),
        }

    def fold(self, facts: Iterable[Fact]) -> dict[str, Import]:
        return ledger.fold(self.connection, facts, 0)

    def advance(self, log: str, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        try:
            self._working.write()
            self._kept.write(self.connection)
            advance(self.connection, log, dict(before), dict(after))
        except (Clash, IntegrityError) as error:
            raise SecondReader(str(error)) from error

    def mark(self, import_id: str, markers: dict[str, int]) -> None:
        self.connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(markers=markers))
        self.connection.execute(delete(t.closings).where(t.closings.c.import_id == import_id))

    def forget(self, chunks: Iterable[tuple[str, int]], events: int) -> None:
        for import_id, number in chunks:
            where = (t.outbox.c.import_id == import_id, t.outbox.c.number == number)
            self.connection.execute(delete(t.outbox).where(*where))
        numbers = list(self.connection.execute(select(t.events.c.number).order_by(t.events.c.number)).scalars())
        if events:
            sent = t.events.c.number <= numbers[events - 1]
            self.connection.execute(update(t.events).where(sent).values(published=True))


class SqlStore:
    """One connection. A transaction that nobody committed is rolled back by whoever comes next."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._store = ControlStore("sqlite://")
        self._connection = self._store._engine.connect()
        self._view: Memory | None = None

    def read(self) -> Memory:
        if self._view is None:
            self._connection.rollback()
            self._view = _view(self._connection, self._contents)
            self._connection.rollback()
        return self._view

    def begin(self) -> SqlTransaction:
        self._connection.rollback()
        return SqlTransaction(self._connection)

    def commit(self, transaction: SqlTransaction) -> None:
        transaction.connection.commit()
        self._view = None

    def backup(self) -> sqlite3.Connection:
        self._connection.rollback()
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        self._raw().backup(copy)
        return copy

    def restore(self, backup: sqlite3.Connection) -> None:
        self._connection.rollback()
        backup.backup(self._raw())
        self._view = None

    def close(self) -> None:
        self._connection.close()
        self._store.close()

    def _raw(self) -> sqlite3.Connection:
        raw: Any = self._connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        return raw


def _view(connection: Connection, contents: Contents) -> Memory:
    """All of the store as the dictionaries that everyone else in the world reads."""
    view = Memory()
    for row in connection.execute(select(t.tenants)):
        view.tenants[row.name] = Tenant(row.name, row.partition, row.agreement, row.revision)
    for row in connection.execute(select(t.tables)):
        definition = Definition.from_json(row.definition.encode())
        view.tables[row.tenant, row.name] = Table(
            row.tenant, row.name, definition, row.last_version, row.defined_us, row.floor, row.open_imports,
            row.dropped_us, row.is_purged,
        )  # fmt: skip
    for row in connection.execute(select(t.revisions).order_by(t.revisions.c.revision)):
        name = row.tenant, row.table_name
        view.revisions[name] = (*view.revisions.get(name, ()), Definition.from_json(row.definition.encode()))
    for row in connection.execute(select(t.spans)):
        view.spans[row.tenant, row.name] = entities._span(row)
        view.spans_seen[row.tenant, row.name] = row.seen_us
    _view_imports(connection, view)
    _view_effects(connection, view, contents)
    view.senders = {(row.tenant, row.table_name, row.stream): row.seq for row in connection.execute(select(t.streams))}
    view.claims = {row.import_id: row.rows for row in connection.execute(select(t.claims))}
    for row in connection.execute(select(t.requests)):
        refusal = None if row.refusal is None else Refusal.from_dict(row.refusal)
        view.requests[row.id] = Applied(row.id, decode_result(row.kind, row.result), refusal)
    for log in (OPS, PROGRESS):
        view.positions |= {(log, partition): offset for partition, offset in positions(connection, log).items()}
    return view


def _view_imports(connection: Connection, view: Memory) -> None:
    for row in connection.execute(select(t.imports)):
        imp = to_import(row._mapping)
        view.imports[imp.id] = imp
        if imp.idempotency_key is not None:
            view.keys[imp.tenant, imp.idempotency_key] = imp.id
    for row in connection.execute(select(t.chunks)):
        verdict = ChunkVerdict(version=0, **row._mapping)
        view.chunks[row.import_id] = {**view.chunks.get(row.import_id, {}), row.number: verdict}


def _view_effects(connection: Connection, view: Memory, contents: Contents) -> None:
    for row in connection.execute(select(t.events).order_by(t.events.c.number)):
        event = row.event
        kind = event["type"].removeprefix(_EVENT_PREFIX)
        view.events.append(Event(event["id"], row.tenant, kind, event["subject"], event["data"]))
        view.sent += row.published
    view.closings = dict.fromkeys(connection.execute(select(t.closings.c.import_id)).scalars())
    for row in connection.execute(select(t.outbox)):
        header, payload = unpack_stamp(row.record)
        assert header is not None
        rows = contents.get(bytes(payload), ())
        view.outbox[row.import_id, row.number] = Chunk(
            header.import_id, header.number, header.version, header.definition, rows, tuple(range(1, len(rows) + 1)),
            header.checksum, header.kind, header.publish,
        )  # fmt: skip
