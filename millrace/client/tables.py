"""Tables of tenants, their sinks, how their rules of quality fare, and the JSON Schemas of the documents."""

from collections.abc import Mapping
from typing import Any

from millrace.client.documents import DeclarationResult, Difference, TableDocument
from millrace.client.resource import Document, Documents, ResourceClient, at, given

Tables = list[TableDocument]


class TableClient(ResourceClient):
    def list(self, tenant: str) -> Tables:
        return self._items(TableDocument, at("tenants", tenant, "tables"))

    def show(self, tenant: str, table: str) -> TableDocument:
        return self._ask(TableDocument, "GET", _table(tenant, table))

    def apply(
        self,
        tenant: str,
        table: str,
        declaration: Mapping[str, Any],
        *,
        new_generation: bool = False,
        strict: bool = False,
        check: bool = True,
    ) -> DeclarationResult:
        """A new generation may change anything, and begins without rows. New sinks are tried unless `check` is false."""
        params = given(new_generation=new_generation, strict=strict, check=check)
        return self._ask(DeclarationResult, "PUT", _table(tenant, table), params=params, json=dict(declaration))

    def diff(
        self,
        tenant: str,
        table: str,
        declaration: Mapping[str, Any],
        *,
        new_generation: bool = False,
        strict: bool = False,
    ) -> Difference:
        """What the declaration would change, or why it would be refused."""
        params = given(new_generation=new_generation, strict=strict)
        return self._ask(Difference, "POST", _table(tenant, table, "diff"), params=params, json=dict(declaration))

    def truncate(self, tenant: str, table: str, *, wait_turn: bool = True) -> Document:
        """Returns once the op was applied, however long it waited for its turn."""
        return self._settled("POST", _table(tenant, table, "truncate"), params=given(wait_turn=wait_turn))

    def drop(self, tenant: str, table: str, *, wait_turn: bool = True) -> Document:
        """The table can be restored for some days."""
        return self._settled("DELETE", _table(tenant, table), params=given(wait_turn=wait_turn))

    def restore(self, tenant: str, table: str) -> Document:
        return self._settled("POST", _table(tenant, table, "restore"))

    def revisions(self, tenant: str, table: str) -> Documents:
        """Every definition the table ever had, the newest first."""
        return self._items(Document, _table(tenant, table, "revisions"))


class SinkClient(ResourceClient):
    def list(self, tenant: str, table: str) -> Documents:
        return self._items(Document, _table(tenant, table, "sinks"))

    def check(self, tenant: str, table: str, sink: str) -> Document:
        """Whether the sink takes rows; nothing is left there."""
        return self._ask(Document, "POST", _table(tenant, table, "sinks", sink, "check"))

    def resume(self, tenant: str, table: str, sink: str) -> Document:
        """Tries a parked sink now."""
        return self._ask(Document, "POST", _table(tenant, table, "sinks", sink, "resume"))

    def waive(self, tenant: str, table: str, sink: str) -> Document:
        """Gives up what waits for a dead sink; `imports` of the answer end without it."""
        return self._ask(Document, "POST", _table(tenant, table, "sinks", sink, "waive"))


class QualityClient(ResourceClient):
    def of_import(self, import_id: str) -> Document:
        return self._ask(Document, "GET", at("imports", import_id, "quality"))

    def of_table(self, tenant: str, table: str, *, last: int = 20) -> Document:
        """The trend over the last imports."""
        return self._ask(Document, "GET", _table(tenant, table, "quality"), params=given(last=last))


class SchemaClient(ResourceClient):
    def list(self) -> Documents:
        return self._items(Document, at("schemas"))

    def show(self, name: str) -> Document:
        return self._ask(Document, "GET", at("schemas", name))


def _table(tenant: str, table: str, *verb: str) -> str:
    return at("tenants", tenant, "tables", table, *verb)
