"""The audit log: who changed what, when and from where."""

from millrace.client.resource import Document, Documents, ResourceClient, at, given


class AuditClient(ResourceClient):
    def list(self, tenant: str | None = None, *, limit: int = 100) -> Documents:
        """The latest entries, in order."""
        return self._items(Document, at("audit"), params=given(newest=True, limit=limit, tenant=tenant))
