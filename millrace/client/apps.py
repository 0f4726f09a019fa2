"""Client apps: what is declared, how each is doing, its runs, their files and logs."""

from collections.abc import Iterator

from millrace.client.resource import Document, Documents, ResourceClient, at, given


class AppClient(ResourceClient):
    def list(self) -> Document:
        """`items`: every app, with its tenant's agreement; `backend`: how they run. For the operator alone."""
        return self._ask(Document, "GET", at("apps"))

    def show(self, tenant: str, *, app: str | None = None) -> Document:
        """`app`: which one, if the tenant has several."""
        return self._ask(Document, "GET", _app(tenant), params=given(app=app))

    def run(self, tenant: str, *, app: str | None = None) -> Document:
        return self._ask(Document, "POST", _app(tenant, "run"), params=given(app=app))

    def runs(self, tenant: str, *, limit: int = 20, app: str | None = None) -> Documents:
        """The newest first, of one app or of all."""
        return self._items(Document, _app(tenant, "runs"), params=given(limit=limit, app=app))

    def show_run(self, tenant: str, run: str) -> Document:
        """Its record, with the names of its logs."""
        return self._ask(Document, "GET", _app(tenant, "runs", run))

    def files(self, tenant: str, run: str) -> Documents:
        """What became of each file of a run."""
        return self._items(Document, _app(tenant, "runs", run, "files"))

    def log(self, tenant: str, run: str, name: str, *, tail_bytes: int = 1 << 20) -> Iterator[bytes]:
        yield from self._connection.pieces(_app(tenant, "runs", run, "log"), given(name=name, tail=tail_bytes))


def _app(tenant: str, *rest: str) -> str:
    return at("tenants", tenant, "app", *rest)
