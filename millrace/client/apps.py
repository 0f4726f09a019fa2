"""Client apps over REST: what is declared, how each is doing, its runs, their files and logs."""

from collections.abc import Iterator
from typing import Any, cast

from millrace.client.connection import Connection, path_part

Document = dict[str, Any]


class Apps:
    """Safe to share between threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self) -> Document:
        """Every tenant that has one, with its agreement, and how they run here; for the operator alone."""
        return cast(Document, self._connection.json("GET", "/v1/apps"))

    def show(self, tenant: str) -> Document:
        return cast(Document, self._connection.json("GET", _route(tenant)))

    def run(self, tenant: str) -> Document:
        """Asks for a run now."""
        return cast(Document, self._connection.json("POST", f"{_route(tenant)}/run"))

    def runs(self, tenant: str, *, limit: int = 20) -> list[Document]:
        """The newest first."""
        found = self._connection.json("GET", f"{_route(tenant)}/runs", params={"limit": str(limit)})
        return cast(list[Document], found["items"])

    def files(self, tenant: str, run: str) -> list[Document]:
        """What became of each file of a run."""
        return cast(list[Document], self._connection.json("GET", f"{_run(tenant, run)}/files")["items"])

    def one_run(self, tenant: str, run: str) -> Document:
        """Its record, with the names of its logs."""
        return cast(Document, self._connection.json("GET", _run(tenant, run)))

    def log(self, tenant: str, run: str, name: str, *, tail_bytes: int = 1 << 20) -> Iterator[bytes]:
        yield from self._connection.pieces(f"{_run(tenant, run)}/log", {"name": name, "tail": str(tail_bytes)})


def _route(tenant: str) -> str:
    return f"/v1/tenants/{path_part(tenant)}/app"


def _run(tenant: str, run: str) -> str:
    return f"{_route(tenant)}/runs/{path_part(run)}"
