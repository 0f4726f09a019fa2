"""Webhooks of one tenant over REST: which events go where, and how they are doing."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, cast

from millrace.client.connection import Connection, path_part


class Lag(TypedDict):
    events: int
    seconds: float


class SubscriptionDocument(TypedDict):
    """`secret` is there only in the answer that made it."""

    tenant: str
    name: str
    url: str
    types: list[str]
    order: str
    enabled: bool
    created_at: str
    delivered: int
    given_up: int
    last_delivered: dict[str, Any] | None
    last_error: dict[str, Any] | None
    lag: Lag
    old_secret_until: str | None
    secret: NotRequired[str]


class Tried(TypedDict):
    delivered: bool
    status: int | None
    error: dict[str, str] | None
    seconds: float


class Webhooks:
    """Safe to share between threads."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._route = f"/v1/tenants/{path_part(tenant)}/subscriptions"

    def add(
        self, name: str, url: str, *, types: Sequence[str] = ("*",), order: str = "in_order", enabled: bool = True
    ) -> SubscriptionDocument:
        """Its `secret` signs every event and is shown this once."""
        body = {"name": name, "url": url, "types": list(types), "order": order, "enabled": enabled}
        return cast(SubscriptionDocument, self._connection.json("POST", self._route, json=body))

    def list(self) -> list[SubscriptionDocument]:
        return cast("list[SubscriptionDocument]", self._connection.json("GET", self._route)["items"])

    def show(self, name: str) -> SubscriptionDocument:
        return cast(SubscriptionDocument, self._connection.json("GET", self._one(name)))

    def change(self, name: str, **changes: Any) -> SubscriptionDocument:
        """url, types, order or enabled; what is not named stays as it is."""
        return cast(SubscriptionDocument, self._connection.json("PATCH", self._one(name), json=changes))

    def remove(self, name: str) -> None:
        self._connection.ok("DELETE", self._one(name))

    def rotate(self, name: str, *, overlap_seconds: float) -> SubscriptionDocument:
        """A new secret; the old one signs as well until the overlap is over."""
        body = {"overlap_seconds": overlap_seconds}
        return cast(SubscriptionDocument, self._connection.json("POST", f"{self._one(name)}/rotate", json=body))

    def test(self, name: str) -> Tried:
        """Sends one event now and tells what came of it."""
        return cast(Tried, self._connection.json("POST", f"{self._one(name)}/test", json={}))

    def _one(self, name: str) -> str:
        return f"{self._route}/{path_part(name)}"
