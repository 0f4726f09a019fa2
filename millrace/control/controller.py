"""The controller's shell: reads the table log in order, applies each op once, and carries out what follows from it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from millrace.control.definitions import DefinitionFiles
from millrace.control.entities import forget_facts, load, save
from millrace.control.step import Announce, Close, Effect, Publish, refuse_unknown, step
from millrace.model import ops
from millrace.model.errors import Refused
from millrace.model.ops import Applied, Op
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import Store, insert_new, upsert
from millrace.store.records import advance, positions
from millrace.wire.client import Appender, Cluster, LogReader, Record, Topics
from millrace.wire.envelope import pack, pack_close, unpack
from millrace.wire.topics import EVENTS, RAW_INPUT, TABLE_OPS

BATCH = 500
# Whoever asks for these hears of the import itself; nobody asks for the op.
_UNASKED = (ops.END_IMPORT, ops.SETTLE_IMPORT)
EVENT_SOURCE = "millrace"


class Controller:
    """One thread. `on_applied` hears of each op after its transaction has committed."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        appender: Appender,
        definitions: DefinitionFiles,
        on_applied: Callable[[list[Applied]], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._appender = appender
        self._definitions = definitions
        self._on_applied = on_applied
        self._raw_partitions = Topics(cluster).partitions(RAW_INPUT)

    def run(self, stopping: threading.Event) -> None:
        with self._store.read() as connection:
            self._positions = positions(connection, TABLE_OPS)
        reader = LogReader(self._cluster, TABLE_OPS, self._positions)
        try:
            self._relay()
            while not stopping.is_set():
                records = reader.poll(BATCH, 0.1)
                if records:
                    self.apply(records)
        finally:
            reader.close()

    def apply(self, records: list[Record]) -> None:
        """1. Evaluate each op against what all earlier ones left. 2. Store the outcome, its effects and the log position
        in one transaction. 3. Tell who waits. 4. Carry out the effects that leave the store."""
        after = dict(self._positions)
        kept = _Kept()
        with self._store.write() as connection:
            applied = [self._apply_one(connection, record, kept) for record in records]
            kept.write(connection)
            for record in records:
                after[record.partition] = record.offset + 1
            moved = {
                partition: offset for partition, offset in after.items() if self._positions.get(partition) != offset
            }
            advance(connection, TABLE_OPS, self._positions, moved)
        self._positions = after
        self._on_applied(applied)
        if kept.events or kept.closings:
            self._relay()

    def _apply_one(self, connection: Connection, record: Record, kept: "_Kept") -> Applied:
        op, at_us = Op.from_dict(unpack(record.value)), record.at_ms * 1000
        try:
            refuse_unknown(op)
            before = load(connection, op)
            after, effects, result = step(before, op, at_us, record.partition)
            save(connection, before, after, at_us)
            if after.imp is not None and after.imp.is_over:
                kept.over.append(after.imp.id)
            for number, effect in enumerate(effects):
                self._keep(effect, op, number, at_us, kept)
            applied = Applied(op.id, result)
        except Refused as refusal:
            applied = Applied(op.id, {}, {"code": refusal.code, "message": refusal.message, "remedy": refusal.remedy})
        observe("op_applied", kind=op.kind, refused=applied.refusal is not None)
        if op.kind not in _UNASKED:
            kept.requests.append(_request(op, at_us, applied))
        return applied

    def _keep(self, effect: Effect, op: Op, number: int, at_us: int, kept: "_Kept") -> None:
        match effect:
            case Publish(definition):
                # Before the commit: nobody may be able to name a definition that a worker cannot read.
                self._definitions.publish(definition)
            case Close(import_id):
                kept.closings.append({"import_id": import_id})
            case Announce():
                event = cloud_event(effect, op, number, at_us)
                row = {"id": event["id"], "tenant": op.tenant, "event": event, "kept_from": at_us // 1_000_000}
                kept.events.append({**row, "published": False})

    def _relay(self) -> None:
        with self._store.read() as connection:
            closings = list(connection.execute(select(t.closings.c.import_id)).scalars())
            waiting = select(t.events.c.number, t.events.c.tenant, t.events.c.event).where(
                t.events.c.published.is_(False)
            )
            events = list(connection.execute(waiting.order_by(t.events.c.number)))
        for import_id in closings:
            self._mark_closed(import_id)
        futures = [
            self._appender.append(EVENTS, e.tenant.encode(), pack(e.event), _event_partition(e.tenant)) for e in events
        ]
        for future in futures:
            future.result()
        if events:
            with self._store.write() as connection:
                last = events[-1].number
                connection.execute(update(t.events).where(t.events.c.number <= last).values(published=True))

    def _mark_closed(self, import_id: str) -> None:
        """First the workers' stop list, then the markers: whatever is judged behind a marker is ignored."""
        self._definitions.stop(import_id)
        record = pack_close(import_id)
        futures = [self._appender.append(RAW_INPUT, import_id.encode(), record, n) for n in range(self._raw_partitions)]
        markers = {str(done.partition): done.offset for done in (future.result() for future in futures)}
        with self._store.write() as connection:
            connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(markers=markers))
            connection.execute(delete(t.closings).where(t.closings.c.import_id == import_id))


@dataclass
class _Kept:
    """What a batch of ops leaves besides its entities, written in one go."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    closings: list[dict[str, Any]] = field(default_factory=list)
    over: list[str] = field(default_factory=list)

    def write(self, connection: Connection) -> None:
        if self.requests:
            upsert(connection, t.requests, self.requests)
        if self.events:
            connection.execute(insert(t.events), self.events)
        insert_new(connection, t.closings, self.closings)
        if self.over:
            forget_facts(connection, self.over)


def cloud_event(announce: Announce, op: Op, number: int, at_us: int) -> dict[str, Any]:
    """A CloudEvents 1.0 event; its id follows from the op's id, so that a replay announces nothing new."""
    return {
        "specversion": "1.0",
        "id": f"{op.id}.{op.kind}.{number}",
        "source": f"/{EVENT_SOURCE}/tenants/{op.tenant}",
        "type": f"{EVENT_SOURCE}.{announce.type}",
        "subject": announce.subject,
        "time": datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": announce.data,
    }


def _request(op: Op, at_us: int, applied: Applied) -> dict[str, Any]:
    return {
        "id": op.id,
        "kind": op.kind,
        "tenant": op.tenant,
        "subject": op.subject,
        "requested_us": at_us,
        "applied": True,
        "result": applied.result,
        "refusal": applied.refusal,
    }


def _event_partition(tenant: str) -> int:
    return sum(tenant.encode()) % 2
