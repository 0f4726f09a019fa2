"""Who may use the platform, and who did what and how much: tokens, the audit log, usage by day."""

from collections.abc import Sequence

from millrace.client.resource import Document, Documents, ResourceClient, at, given


class TokenClient(ResourceClient):
    def create(
        self,
        name: str,
        *,
        tenant: str | None = None,
        role: str | None = None,
        tables: Sequence[str] | None = None,
        days: float | None = None,
    ) -> Document:
        """A new one; its `token` is shown this once. Without a role it may do everything it can see.

        `tables` limits it to some, and it expires after `days`."""
        body = {"name": name, "tenant": tenant, "role": role, "tables": tables, "days": days}
        return self._ask(Document, "POST", at("tokens"), json=body)

    def list(self, tenant: str | None = None) -> Documents:
        return self._items(Document, at("tokens"), params=given(tenant=tenant))

    def delete(self, name: str, tenant: str | None = None) -> Document:
        """Revokes it and all tokens that were made with it; `revoked` lists them. An operator names the tenant's, if any."""
        return self._ask(Document, "DELETE", at("tokens", name), params=given(tenant=tenant))


class AuditClient(ResourceClient):
    def list(self, tenant: str | None = None, *, limit: int = 100) -> Documents:
        """The latest entries, in order."""
        return self._items(Document, at("audit"), params=given(newest=True, limit=limit, tenant=tenant))


class UsageClient(ResourceClient):
    def show(self, tenant: str, *, days: int = 30) -> Document:
        """By day, the newest first, with the quotas and the lag."""
        return self._ask(Document, "GET", at("tenants", tenant, "usage"), params=given(days=days))

    def list(self, day: str) -> Documents:
        """What every tenant used on a day, such as 2026-11-15."""
        return self._items(Document, at("usage"), params=given(day=day))
