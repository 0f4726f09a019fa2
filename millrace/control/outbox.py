"""Effects that leave the store: kept in the op's transaction, relayed afterwards under ids that follow from the op."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from millrace.control.entities import forget_facts
from millrace.control.state import Announce, Close, Effect, Send
from millrace.exchange.stops import StopList
from millrace.model.ops import Op
from millrace.store import tables as t
from millrace.store.engine import ControlStore, insert_new, upsert
from millrace.store.records import MOST_AT_ONCE, batched
from millrace.wire.client import Appender
from millrace.wire.envelope import pack, pack_chunk, pack_close
from millrace.wire.topics import (
    EVENT_PARTITIONS,
    EVENTS,
    RAW_INPUT,
    chunk_partition,
    quick_partitions,
    tenant_partition,
)

EVENT_SOURCE = "millrace"
STRUCTURED_EVENT = b"application/cloudevents+json; charset=UTF-8"
CLOUD_EVENT_ATTRIBUTES = ("specversion", "id", "source", "type", "subject", "time")
# One row a time: how many there are is up to the tenants, and a statement may hold only so much.
_FORGET_CHUNK = delete(t.outbox).where(
    t.outbox.c.import_id == bindparam("of_import"), t.outbox.c.number == bindparam("of_number")
)

_PUBLISHED = update(t.events).where(t.events.c.id.in_(bindparam("event_ids", expanding=True))).values(published=True)


@dataclass
class Kept:
    """What a batch of ops leaves besides its entities, written in one go."""

    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    closings: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    over: list[str] = field(default_factory=list)

    @property
    def leaves_the_store(self) -> bool:
        return bool(self.events or self.closings or self.chunks)

    def keep(self, effect: Effect, op: Op[Any], number: int, at_us: int) -> None:
        match effect:
            case Close(import_id):
                self.closings.append({"import_id": import_id})
            case Send():
                record, chunk = pack_chunk(effect.header, effect.payload), effect.header
                self.chunks.append({"import_id": chunk.import_id, "number": chunk.number, "record": record})
            case Announce():
                event = cloud_event(effect, op, number, at_us)
                row = {"id": event["id"], "tenant": op.tenant, "event": event, "kept_from": at_us // 1_000_000}
                self.events.append({**row, "published": False})

    def write(self, connection: Connection) -> None:
        if self.requests:
            upsert(connection, t.requests, list(self.requests.values()))
        # An op that was appended twice announces the same event.
        insert_new(connection, t.events, self.events)
        insert_new(connection, t.closings, self.closings)
        insert_new(connection, t.outbox, self.chunks)
        if self.over:
            forget_facts(connection, self.over)


class EffectOutbox:
    """Relays what waits in the store; asked again after a crash, it relays again what may already be there."""

    def __init__(self, store: ControlStore, appender: Appender, stops: StopList, raw_partitions: int) -> None:
        self._store = store
        self._appender = appender
        self._stops = stops
        self._raw_partitions = raw_partitions

    def relay(self) -> None:
        with self._store.read() as connection:
            chunks = list(connection.execute(select(t.outbox)))
            closings = list(connection.execute(select(t.closings.c.import_id)).scalars())
            waiting = select(t.events.c.id, t.events.c.tenant, t.events.c.event).where(t.events.c.published.is_(False))
            events = list(connection.execute(waiting.order_by(t.events.c.number)))
        sent = [self._send(row.import_id, row.record) for row in chunks]
        for import_id in closings:
            self._mark_closed(import_id)
        sent += [self._announce(event.tenant, event.event) for event in events]
        for future in sent:
            future.result()
        if sent:
            self._forget(chunks, events)

    def _send(self, import_id: str, record: bytes) -> Any:
        partition = chunk_partition(import_id, 0, quick_partitions())
        return self._appender.append(RAW_INPUT, import_id.encode(), record, partition)

    def _announce(self, tenant: str, event: dict[str, Any]) -> Any:
        partition = tenant_partition(tenant, EVENT_PARTITIONS)
        return self._appender.append(EVENTS, tenant.encode(), pack(event), partition, event_headers(event))

    def _forget(self, chunks: list[Any], events: list[Any]) -> None:
        with self._store.write() as connection:
            # By id: another process may have kept an event with a smaller number meanwhile, and not sent it yet.
            for ids in batched((event.id for event in events), MOST_AT_ONCE):
                connection.execute(_PUBLISHED, {"event_ids": ids})
            if chunks:
                them = [{"of_import": row.import_id, "of_number": row.number} for row in chunks]
                connection.execute(_FORGET_CHUNK, them)

    def _mark_closed(self, import_id: str) -> None:
        """First the workers' stop list, then the markers: whatever is judged behind a marker is ignored."""
        self._stops.stop(import_id)
        record = pack_close(import_id)
        futures = [self._appender.append(RAW_INPUT, import_id.encode(), record, n) for n in range(self._raw_partitions)]
        markers = {str(done.partition): done.offset for done in (future.result() for future in futures)}
        with self._store.write() as connection:
            connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(markers=markers))
            connection.execute(delete(t.closings).where(t.closings.c.import_id == import_id))


def event_headers(event: dict[str, Any]) -> list[tuple[str, bytes]]:
    """As the Kafka binding of CloudEvents says: the content type tells that the value is the whole event. The attributes come
    along, so that a consumer can choose without reading the value."""
    attributes = ((f"ce_{name}", str(event[name]).encode()) for name in CLOUD_EVENT_ATTRIBUTES if name in event)
    return [("content-type", STRUCTURED_EVENT), *attributes]


def cloud_event(announce: Announce, op: Op[Any], number: int, at_us: int) -> dict[str, Any]:
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
