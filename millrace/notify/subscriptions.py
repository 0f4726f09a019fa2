"""Subscriptions in the store: make, read, change, rotate, remove. A secret is shown once, when it is made."""

import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from millrace.model.errors import Clash, Missing
from millrace.model.limits import REMOVAL_SECONDS, over_limit
from millrace.model.moments import iso
from millrace.model.names import checked_name, new_id
from millrace.notify.subscription import (
    EVERYTHING,
    IN_ORDER,
    Subscription,
    checked_order,
    checked_types,
    first_secret,
    from_row,
    rotated,
)
from millrace.store import tables as t
from millrace.store.agreements import known_agreement
from millrace.store.engine import ControlStore
from millrace.store.tables import deliveries, subscriptions

MOST_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to make. Its address has been checked."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    name: str
    url: str
    types: list[str] = field(default_factory=lambda: [EVERYTHING])
    order: str = IN_ORDER
    enabled: bool = True


class Subscriptions:
    """`most`: how many a tenant may make; None: any number."""

    def __init__(self, store: ControlStore, most: int | None = None) -> None:
        self._store = store
        self._most = most

    def add(self, tenant: str, wanted: NewSubscription) -> str:
        """Makes a subscription to all later events. Returns the secret that signs them."""
        secrets = first_secret()
        row = {
            "id": new_id("sub"),
            "tenant": tenant,
            "name": checked_name("subscription", wanted.name),
            "url": wanted.url,
            "types": checked_types(wanted.types),
            "ordering": checked_order(wanted.order),
            "enabled": wanted.enabled,
            "secrets": secrets,
            "created_us": _now_us(),
            "delivered": 0,
            "given_up": 0,
        }
        with self._store.write() as connection:
            self._refuse_one_more(connection, tenant, wanted.name)
            newest = connection.execute(select(func.max(t.events.c.number))).scalar() or 0
            connection.execute(insert(subscriptions).values(**row, position=newest))
        return str(secrets[0]["secret"])

    def _refuse_one_more(self, connection: Connection, tenant: str, name: str) -> None:
        known_agreement(connection, tenant)
        mine = select(subscriptions.c.name).where(subscriptions.c.tenant == tenant)
        names = connection.execute(mine).scalars().all()
        if name in names:
            raise Clash(f"There is a subscription {name!r} already.", remedy="Remove it first, or change it.")
        if self._most is not None and len(names) >= self._most:
            raise over_limit(
                tenant, "subscriptions", "subscriptions", self._most, used=len(names), remedy="Remove one first.",
                retry_seconds=REMOVAL_SECONDS,
            )  # fmt: skip

    def find(self, tenant: str, name: str) -> Subscription:
        with self._store.read() as connection:
            return from_row(_row(connection, tenant, name)._mapping)

    def document(self, tenant: str, name: str) -> dict[str, Any]:
        with self._store.read() as connection:
            return _document(connection, _row(connection, tenant, name))

    def documents(self, tenant: str) -> list[dict[str, Any]]:
        wanted = select(subscriptions).where(subscriptions.c.tenant == tenant).order_by(subscriptions.c.name)
        with self._store.read() as connection:
            return [_document(connection, row) for row in connection.execute(wanted).all()]

    def change(self, tenant: str, name: str, changes: dict[str, Any]) -> None:
        """Waiting events are retried at once: the change may be the fix."""
        values = {column: value for column, value in changes.items() if column in ("url", "enabled")}
        if "types" in changes:
            values["types"] = checked_types(changes["types"])
        if "order" in changes:
            values["ordering"] = checked_order(changes["order"])
        with self._store.write() as connection:
            found = _row(connection, tenant, name)
            if values:
                connection.execute(update(subscriptions).where(subscriptions.c.id == found.id).values(**values))
            connection.execute(update(deliveries).where(deliveries.c.subscription == found.id).values(next_us=0))

    def rotate(self, tenant: str, name: str, overlap_seconds: float) -> str:
        """Returns the new secret. The old one also signs until the overlap ends, so that receivers can change over."""
        now = _now_us()
        with self._store.write() as connection:
            found = _row(connection, tenant, name)
            secrets = rotated(found.secrets, now + int(overlap_seconds * 1e6), now)
            connection.execute(update(subscriptions).where(subscriptions.c.id == found.id).values(secrets=secrets))
        return str(secrets[0]["secret"])

    def remove(self, tenant: str, name: str) -> None:
        with self._store.write() as connection:
            found = _row(connection, tenant, name)
            connection.execute(delete(deliveries).where(deliveries.c.subscription == found.id))
            connection.execute(delete(subscriptions).where(subscriptions.c.id == found.id))


def _row(connection: Connection, tenant: str, name: str) -> Any:
    wanted = select(subscriptions).where(subscriptions.c.tenant == tenant, subscriptions.c.name == name)
    row = connection.execute(wanted).first()
    if row is None:
        raise Missing(f"There is no subscription {tenant}/{name[:63]}.", code="no_subscription")
    return row


def _document(connection: Connection, row: Any) -> dict[str, Any]:
    subscription = from_row(row._mapping)
    endings = [until_us for _, until_us in subscription.secrets if until_us is not None and until_us > _now_us()]
    return {
        "tenant": subscription.tenant,
        "name": subscription.name,
        "url": subscription.url,
        "types": list(subscription.types),
        "order": subscription.order,
        "enabled": subscription.enabled,
        "created_at": iso(row.created_us),
        "delivered": row.delivered,
        "given_up": row.given_up,
        "last_delivered": row.last_delivered,
        "last_error": row.last_error,
        "lag": _lag(connection, subscription, row.position),
        "old_secret_until": iso(max(endings, default=None)),
    }


def _lag(connection: Connection, subscription: Subscription, position: int) -> dict[str, float]:
    """The number of waiting events, counted up to a bound, and the age of the oldest."""
    queued = select(func.count(), func.min(deliveries.c.since_us)).where(deliveries.c.subscription == subscription.id)
    waiting, since_us = connection.execute(queued).one()
    unread = (
        select(t.events.c.event, t.events.c.kept_from)
        .where(t.events.c.number > position, t.events.c.tenant == subscription.tenant)
        .order_by(t.events.c.number)
        .limit(MOST_COUNTED)
    )
    times = [row.kept_from * 1_000_000 for row in connection.execute(unread) if subscription.wants(row.event["type"])]
    oldest = min([*times, *([since_us] if waiting else [])], default=None)
    seconds = 0.0 if oldest is None else round(max(_now_us() - oldest, 0) / 1e6, 3)
    return {"events": waiting + len(times), "seconds": seconds}


def _now_us() -> int:
    return time.time_ns() // 1000
