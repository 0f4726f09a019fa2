"""Tenants as a whole, and the keys that seal their rows on their way."""

from collections.abc import Mapping
from typing import Any

from millrace.client.documents import DeclarationResult, Difference
from millrace.client.resource import Document, Documents, ResourceClient, at, given

_ROTATE_SECONDS = 600.0


class TenantClient(ResourceClient):
    def list(self) -> Documents:
        return self._items(Document, at("tenants"))

    def show(self, tenant: str) -> Document:
        """Its agreement and the names of its tables."""
        return self._ask(Document, "GET", at("tenants", tenant))

    def apply(self, tenant: str, agreement: Mapping[str, Any], *, strict: bool = False) -> DeclarationResult:
        params = given(strict=strict)
        return self._ask(DeclarationResult, "PUT", at("tenants", tenant), params=params, json=dict(agreement))

    def diff(self, tenant: str, agreement: Mapping[str, Any], *, strict: bool = False) -> Difference:
        """What the agreement would change; it may change anything."""
        params = given(strict=strict)
        return self._ask(Difference, "POST", at("tenants", tenant, "diff"), params=params, json=dict(agreement))

    def export(self, tenant: str) -> Document:
        """Its agreement and its tables as documents that can be applied again."""
        return self._ask(Document, "GET", at("tenants", tenant, "export"))

    def delete(self, tenant: str, *, confirm: str, grace_days: int = 7) -> Document:
        """It can be restored until `grace_days` are over. `confirm` repeats its name."""
        params = given(confirm=confirm, grace_days=grace_days)
        return self._settled("DELETE", at("tenants", tenant), params=params)

    def restore(self, tenant: str) -> Document:
        return self._settled("POST", at("tenants", tenant, "restore"))

    def erase(self, tenant: str, *, confirm: str, now: bool = False, wait: float = 30.0) -> Document:
        """The receipt: what was removed, what expires when, what remains. A sink is given up after `wait` seconds."""
        params, timeout = given(confirm=confirm, now=now, wait=wait), 3 * wait + 60
        return self._ask(Document, "POST", at("tenants", tenant, "erase"), params=params, timeout=timeout)

    def receipt(self, tenant: str) -> Document:
        return self._ask(Document, "GET", at("erasures", tenant))


class KeyClient(ResourceClient):
    def show(self, tenant: str) -> Document:
        return self._ask(Document, "GET", at("tenants", tenant, "key"))

    def rotate(self, tenant: str) -> Document:
        return self._ask(Document, "POST", at("tenants", tenant, "key", "rotate"), timeout=_ROTATE_SECONDS)

    def destroy(self, tenant: str, *, confirm: str) -> Document:
        """Nobody can read again what the key sealed. `confirm` repeats the tenant's name."""
        return self._ask(Document, "DELETE", at("tenants", tenant, "key"), params={"confirm": confirm})
