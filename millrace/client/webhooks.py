"""Webhooks of tenants: which events go where, and how they are doing."""

from collections.abc import Sequence
from typing import Any

from millrace.client.documents import Delivery, SubscriptionDocument
from millrace.client.resource import ResourceClient, at

Subscriptions = list[SubscriptionDocument]


class WebhookClient(ResourceClient):
    def add(
        self,
        tenant: str,
        name: str,
        url: str,
        *,
        types: Sequence[str] = ("*",),
        order: str = "in_order",
        enabled: bool = True,
    ) -> SubscriptionDocument:
        """Its `secret` signs every event and is shown this once."""
        body = {"name": name, "url": url, "types": list(types), "order": order, "enabled": enabled}
        return self._ask(SubscriptionDocument, "POST", _webhooks(tenant), json=body)

    def list(self, tenant: str) -> Subscriptions:
        return self._items(SubscriptionDocument, _webhooks(tenant))

    def show(self, tenant: str, name: str) -> SubscriptionDocument:
        return self._ask(SubscriptionDocument, "GET", _webhooks(tenant, name))

    def change(self, tenant: str, name: str, **changes: Any) -> SubscriptionDocument:
        """url, types, order or enabled; what is not named stays as it is."""
        return self._ask(SubscriptionDocument, "PATCH", _webhooks(tenant, name), json=changes)

    def remove(self, tenant: str, name: str) -> None:
        self._connection.ok("DELETE", _webhooks(tenant, name))

    def rotate(self, tenant: str, name: str, *, overlap_seconds: float) -> SubscriptionDocument:
        """A new secret; the old one signs as well until the overlap is over."""
        body = {"overlap_seconds": overlap_seconds}
        return self._ask(SubscriptionDocument, "POST", _webhooks(tenant, name, "rotate"), json=body)

    def test(self, tenant: str, name: str) -> Delivery:
        return self._ask(Delivery, "POST", _webhooks(tenant, name, "test"), json={})


def _webhooks(tenant: str, *rest: str) -> str:
    return at("tenants", tenant, "subscriptions", *rest)
