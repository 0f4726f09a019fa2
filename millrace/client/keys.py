"""The keys that seal a tenant's rows on their way."""

from millrace.client.resource import Document, ResourceClient, at

_ROTATE_SECONDS = 600.0


class KeyClient(ResourceClient):
    def show(self, tenant: str) -> Document:
        return self._ask(Document, "GET", at("tenants", tenant, "key"))

    def rotate(self, tenant: str) -> Document:
        return self._ask(Document, "POST", at("tenants", tenant, "key", "rotate"), timeout=_ROTATE_SECONDS)

    def destroy(self, tenant: str, *, confirm: str) -> Document:
        """Nobody can read again what the key sealed. `confirm` repeats the tenant's name."""
        return self._ask(Document, "DELETE", at("tenants", tenant, "key"), params={"confirm": confirm})
