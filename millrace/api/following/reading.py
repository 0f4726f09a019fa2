"""Events out of the store, each made into the text of a server-sent event."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from millrace.store import tables as t
from millrace.store.engine import ControlStore


@dataclass(frozen=True, slots=True)
class FedEvent:
    number: int
    tenant: str
    type: str
    subject: str
    frame: bytes


def fed_events(store: ControlStore, tenant: str | None, after: int, limit: int) -> list[FedEvent]:
    """The next ones, of a tenant or of all."""
    wanted = select(t.events.c.number, t.events.c.tenant, t.events.c.event).where(t.events.c.number > after)
    if tenant is not None:
        wanted = wanted.where(t.events.c.tenant == tenant)
    return [_fed(row) for row in store.rows(wanted.order_by(t.events.c.number).limit(limit))]


def newest_event(store: ControlStore, before: float | None = None) -> int:
    """Its number, 0 if there is none; with `before`, of the newest that happened before that second."""
    wanted = select(func.max(t.events.c.number))
    found = store.first(wanted if before is None else wanted.where(t.events.c.kept_from < int(before)))
    return 0 if found is None or found[0] is None else int(found[0])


def _fed(row: Any) -> FedEvent:
    event = row.event
    frame = f"id: {row.number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    return FedEvent(row.number, row.tenant, event["type"], event["subject"], frame)
