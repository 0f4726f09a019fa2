"""The JSON Schemas of the documents that tenants write."""

from millrace.client.resource import Document, Documents, ResourceClient, at


class SchemaClient(ResourceClient):
    def list(self) -> Documents:
        return self._items(Document, at("schemas"))

    def show(self, name: str) -> Document:
        return self._ask(Document, "GET", at("schemas", name))
