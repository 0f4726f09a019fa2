"""The queue of events for subscribers: filled from the events in order, emptied by outcomes.

Each step is one transaction. So after a restart each event is not yet queued, or waiting, or finished. An event whose
delivery was not recorded is delivered again, with the same id."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sqlalchemy import Boolean, Connection, and_, bindparam, delete, func, select, update

from millrace.model.moments import iso
from millrace.notify.subscription import IN_ORDER, Subscription, from_row
from millrace.store import tables as t
from millrace.store.engine import ControlStore, insert_new
from millrace.store.tables import deliveries, subscriptions

WINDOW = 1000
"""The most queued events per subscription: a target that is down for long must not fill the store."""
PAGE = 500
DUE_PAGE = 100


@dataclass(frozen=True, slots=True)
class EventDelivery:
    """`event` is None if the event is no longer kept."""

    number: int
    event: dict[str, Any] | None
    attempts: int
    since_us: int


@dataclass(frozen=True, slots=True)
class EventDelivered:
    subscription: str
    delivery: EventDelivery
    at_us: int


@dataclass(frozen=True, slots=True)
class EventFailed:
    """`next_us`: when to retry; None: give the event up. `is_gone`: the target wants no more events."""

    subscription: str
    delivery: EventDelivery
    at_us: int
    error: dict[str, Any]
    next_us: int | None
    is_gone: bool = False


Outcome = EventDelivered | EventFailed


class EventQueue:
    def __init__(self, store: ControlStore) -> None:
        self._store = store

    def subscriptions(self) -> dict[str, Subscription]:
        with self._store.read() as connection:
            rows = connection.execute(select(subscriptions).where(subscriptions.c.enabled))
            return {row.id: from_row(row._mapping) for row in rows}

    def waiting(self, subscription_id: str) -> int:
        counted = select(func.count()).where(deliveries.c.subscription == subscription_id)
        with self._store.read() as connection:
            return int(connection.execute(counted).scalar_one())

    def newest(self, after: int) -> dict[str, int]:
        """The newest event of each tenant that has events after the number."""
        found = select(t.events.c.tenant, func.max(t.events.c.number)).where(t.events.c.number > after)
        with self._store.read() as connection:
            return {row[0]: row[1] for row in connection.execute(found.group_by(t.events.c.tenant))}

    def fill(self, tenant: str, newest: int, listening: Mapping[str, Subscription]) -> dict[str, "QueuedEvents"]:
        """Queues the tenant's next events for its subscriptions that have room and want them."""
        with self._store.write() as connection:
            wanted = select(subscriptions.c.id, subscriptions.c.position).where(
                subscriptions.c.enabled, subscriptions.c.id.in_(list(listening))
            )
            positions = {row.id: row.position for row in connection.execute(wanted)}
            if not positions:
                return {}
            page = _events_after(connection, tenant, min(positions.values()))
            read_to = page[-1].number if len(page) == PAGE else max([newest, *(row.number for row in page)])
            filled = {key: _take(listening[key], page, position, read_to) for key, position in positions.items()}
            insert_new(connection, deliveries, [row for each in filled.values() for row in each.rows])
            moved = [{"which": key, "moved_to": each.position} for key, each in filled.items()]
            connection.execute(_MOVE, moved)
        return filled

    def due(self, subscription: Subscription) -> tuple[list[EventDelivery], float | None]:
        """Due deliveries, the oldest first, and the seconds until the next one is due."""
        now = time.time_ns() // 1000
        in_order = subscription.order == IN_ORDER
        with self._store.read() as connection:
            wanted = {"which": subscription.id, "most": DUE_PAGE}
            found = list(connection.execute(_OLDEST if in_order else _SOONEST, wanted))
        # In order: later events wait behind the first one that waits.
        ready = takewhile(lambda row: row.next_us <= now, found)
        due = [EventDelivery(row.number, row.event, row.attempts, row.since_us) for row in ready]
        pause = (found[len(due)].next_us - now) / 1e6 if len(due) < len(found) else None
        return due, pause

    def settle(self, outcomes: Iterable[Outcome]) -> None:
        """Records the outcomes of deliveries in one transaction."""
        by_subscription: defaultdict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            by_subscription[outcome.subscription].append(outcome)
        with self._store.write() as connection:
            for key, its in by_subscription.items():
                _settle(connection, key, its)


@dataclass(frozen=True, slots=True)
class QueuedEvents:
    position: int
    rows: list[dict[str, Any]]


# Built once: building a statement costs more than running it.
_WAITING = (
    select(deliveries, t.events.c.event)
    .outerjoin(t.events, t.events.c.number == deliveries.c.number)
    .where(deliveries.c.subscription == bindparam("which"))
    .limit(bindparam("most"))
)
_OLDEST = _WAITING.order_by(deliveries.c.number)
_SOONEST = _WAITING.order_by(deliveries.c.next_us, deliveries.c.number)
_THIS = subscriptions.c.id == bindparam("which")
_MOVE = update(subscriptions).where(_THIS).values(position=bindparam("moved_to"))
_DELIVERED = (
    update(subscriptions)
    .where(_THIS)
    .values(delivered=subscriptions.c.delivered + bindparam("how_many"), last_delivered=bindparam("last"))
)
_FAILED = (
    update(subscriptions)
    .where(_THIS)
    .values(
        given_up=subscriptions.c.given_up + bindparam("how_many"),
        last_error=bindparam("last"),
        enabled=and_(subscriptions.c.enabled, bindparam("is_wanted", type_=Boolean)),
    )
)
_DONE = delete(deliveries).where(
    deliveries.c.subscription == bindparam("which"), deliveries.c.number == bindparam("event_number")
)
_LATER = (
    update(deliveries)
    .where(deliveries.c.subscription == bindparam("which"), deliveries.c.number == bindparam("event_number"))
    .values(attempts=bindparam("tried"), next_us=bindparam("again_us"))
)


def _events_after(connection: Connection, tenant: str, position: int) -> list[Any]:
    wanted = (
        select(t.events.c.number, t.events.c.event, t.events.c.kept_from)
        .where(t.events.c.number > position, t.events.c.tenant == tenant)
        .order_by(t.events.c.number)
        .limit(PAGE)
    )
    return list(connection.execute(wanted))


def _take(subscription: Subscription, page: list[Any], position: int, read_to: int) -> QueuedEvents:
    rows = [
        {
            "subscription": subscription.id,
            "number": row.number,
            "since_us": row.kept_from * 1_000_000,
            "attempts": 0,
            "next_us": 0,
        }
        for row in page
        if row.number > position and subscription.wants(row.event["type"])
    ]
    return QueuedEvents(max(position, read_to), rows)


def _settle(connection: Connection, key: str, outcomes: list[Outcome]) -> None:
    delivered = [each for each in outcomes if isinstance(each, EventDelivered)]
    failed = [each for each in outcomes if isinstance(each, EventFailed)]
    given_up = [each for each in failed if each.next_us is None]
    over: list[Outcome] = [*delivered, *given_up]
    done = [{"which": key, "event_number": each.delivery.number} for each in over]
    if done:
        connection.execute(_DONE, done)
    later = [
        {
            "which": key,
            "event_number": each.delivery.number,
            "tried": each.delivery.attempts + 1,
            "again_us": each.next_us,
        }
        for each in failed
        if each.next_us is not None
    ]
    if later:
        connection.execute(_LATER, later)
    if delivered:
        last = max(delivered, key=lambda each: each.at_us)
        connection.execute(_DELIVERED, {"which": key, "how_many": len(delivered), "last": _shown(last)})
    if failed:
        last_error = max(failed, key=lambda each: each.at_us).error
        wanted = not any(each.is_gone for each in failed)
        connection.execute(_FAILED, {"which": key, "how_many": len(given_up), "last": last_error, "is_wanted": wanted})


def _shown(outcome: EventDelivered) -> dict[str, Any]:
    event = outcome.delivery.event or {}
    return {"id": event.get("id"), "type": event.get("type"), "at": iso(outcome.at_us)}
