"""Access tokens: made, listed and revoked."""

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

    def delete(self, name: str, tenant: str | None = None) -> None:
        self._connection.ok("DELETE", at("tokens", name), params=given(tenant=tenant))
