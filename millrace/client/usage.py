"""What tenants used, by day."""

from millrace.client.resource import Document, Documents, ResourceClient, at, given


class UsageClient(ResourceClient):
    def show(self, tenant: str, *, days: int = 30) -> Document:
        """By day, the newest first, with the quotas and the lag."""
        return self._ask(Document, "GET", at("tenants", tenant, "usage"), params=given(days=days))

    def list(self, day: str) -> Documents:
        """What every tenant used on a day, such as 2026-11-15."""
        return self._items(Document, at("usage"), params=given(day=day))
