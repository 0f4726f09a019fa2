"""The sinks of a table: what waits for each, and what can be done about it."""

from millrace.client.resource import Document, Documents, ResourceClient, at


class SinkClient(ResourceClient):
    def list(self, tenant: str, table: str) -> Documents:
        return self._items(Document, _sinks(tenant, table))

    def check(self, tenant: str, table: str, sink: str) -> Document:
        """Whether the sink takes rows; nothing is left there."""
        return self._ask(Document, "POST", _sinks(tenant, table, sink, "check"))

    def resume(self, tenant: str, table: str, sink: str) -> Document:
        """Tries a parked sink now."""
        return self._ask(Document, "POST", _sinks(tenant, table, sink, "resume"))

    def waive(self, tenant: str, table: str, sink: str) -> Document:
        """Gives up what waits for a dead sink; `imports` of the answer end without it."""
        return self._ask(Document, "POST", _sinks(tenant, table, sink, "waive"))


def _sinks(tenant: str, table: str, *rest: str) -> str:
    return at("tenants", tenant, "tables", table, "sinks", *rest)
