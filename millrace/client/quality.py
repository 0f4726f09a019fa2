"""How the rules of quality fared: in one import, or over the last imports of a table."""

from millrace.client.resource import Document, ResourceClient, at, given


class QualityClient(ResourceClient):
    def of_import(self, import_id: str) -> Document:
        return self._ask(Document, "GET", at("imports", import_id, "quality"))

    def of_table(self, tenant: str, table: str, *, last: int = 20) -> Document:
        """The trend over the last imports."""
        return self._ask(Document, "GET", at("tenants", tenant, "tables", table, "quality"), params=given(last=last))
