"""Rows without a file: a few in one request, or many by a sender."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from millrace.client.resource import Document, ResourceClient, at, given

if TYPE_CHECKING:
    from millrace.client.sender import OnRejected, Sender


class RowClient(ResourceClient):
    def append(
        self,
        tenant: str,
        table: str,
        rows: bytes | Iterable[Mapping[str, Any]],
        *,
        span: str | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Document:
        """JSON Lines, or objects. Returns when they are durable in Kafka; with `wait`, when they have ended."""
        body = rows if isinstance(rows, bytes) else b"\n".join(map(orjson.dumps, rows))
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        params = given(span=span, wait=wait or None)
        path = at("tenants", tenant, "tables", table, "rows")
        return self._ask(Document, "POST", path, content=body, params=params, headers=headers)

    def sender(
        self,
        tenant: str,
        table: str,
        *,
        name: str | None = None,
        span: str | None = None,
        on_rejected: "OnRejected | None" = None,
    ) -> "Sender":
        """Sends rows as they come, for use in a `with` block. A sender with a name can be taken up again later."""
        # WebSockets take long to import, and few programs need them.
        from millrace.client.sender import Sender  # noqa: PLC0415

        return Sender(self._connection, tenant, table, name=name, span=span, on_rejected=on_rejected)
