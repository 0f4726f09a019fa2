"""The audit log: who changed what, asked for rows or was locked out, when, from where, and what came of it. Written before
the caller has its answer.

Holds names only: no body, no query, no header but the request's id, so that no secret can get into it."""

import asyncio
import re
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.auth.access import PUBLIC, access_of, endpoint_of
from millrace.auth.failures import FailureLimit
from millrace.auth.tokens import Caller
from millrace.credentials.secrets import ForeignSecret
from millrace.model.moments import iso
from millrace.model.names import is_import_id, new_id
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.tables import audit

REQUEST_ID = b"x-request-id"
MOST_SUBJECT = 200
MOST_ADDRESS = 64
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_OPENED = 101
_LOCKED_OUT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
FOREIGN_SECRET = "use of a secret"


class Audit:
    """Entries that come at the same time are written in one transaction."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self.failures = FailureLimit()
        self._waiting: list[dict[str, Any]] = []
        self._adding, self._writing = threading.Lock(), threading.Lock()

    def note(self, *entries: dict[str, Any]) -> None:
        """Returns when the entries are in the store."""
        with self._adding:
            self._waiting.extend(entries)
        with self._writing:
            with self._adding:
                taken, self._waiting = self._waiting, []
            if taken:
                with self._store.write() as connection:
                    connection.execute(insert(audit), taken)

    def tenant_of(self, import_id: str) -> str | None:
        found = self._store.first(select(t.imports.c.tenant).where(t.imports.c.id == import_id))
        return None if found is None else str(found.tenant)

    def page(self, tenant: str | None, after: int, limit: int, *, newest: bool) -> list[dict[str, Any]]:
        wanted = select(audit).where(audit.c.number > after)
        if tenant is not None:
            wanted = wanted.where(audit.c.tenant == tenant)
        order = audit.c.number.desc() if newest else audit.c.number
        rows = self._store.rows(wanted.order_by(order).limit(limit))
        return [_document(row) for row in (rows[::-1] if newest else rows)]


def _document(row: Any) -> dict[str, Any]:
    return {
        "number": row.number,
        "at": iso(row.at_us),
        "who": row.who,
        "role": row.role,
        "from": row.from_address,
        "tenant": row.tenant,
        "action": row.action,
        "subject": row.subject,
        "status": row.status,
        "outcome": "done" if row.status < 400 else "refused" if row.status < 500 else "failed",
        "request": row.request_id,
    }


class Audited:
    """Gives every request an id (its own if that is valid), and writes the entries that it deserves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        request_id = _request_id(scope["headers"])

        async def noting(message: Message) -> None:
            status = _status_of(message)
            if status is not None:
                await _note(scope, status, request_id)
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID, request_id.encode())]
            await send(message)

        await self._app(scope, receive, noting)


def _request_id(headers: list[tuple[bytes, bytes]]) -> str:
    given = dict(headers).get(REQUEST_ID, b"").decode("latin-1")
    return given if _SANE_ID.fullmatch(given) else new_id("req")


def _status_of(message: Message) -> int | None:
    """The status, if the message begins an answer. An accepted WebSocket counts as one."""
    if message["type"] == "websocket.accept":
        return _OPENED
    status: int | None = message.get("status") if message["type"].endswith(".response.start") else None
    return status


def note_refusal(connection: HTTPConnection, error: Exception) -> None:
    """A tenant named a secret that is not its own: that has an entry of its own, whichever way it was refused."""
    if isinstance(error, ForeignSecret):
        connection.state.foreign_secret = error


async def _note(scope: Scope, status: int, request_id: str) -> None:
    connection = HTTPConnection(scope)
    log: Audit = scope["app"].state.services.audit
    noted = _noted(log, connection, status)
    if not noted:
        return
    try:
        await asyncio.to_thread(_write, log, connection, noted, request_id)
    except SQLAlchemyError as error:
        # The change itself is done. Nothing else says that its entry is missing.
        observe("trouble", kind="audit", error=f"{request_id} {endpoint_of(connection)}: {error}"[:1000])


def _noted(log: Audit, connection: HTTPConnection, status: int) -> list[dict[str, Any]]:
    """What of this request belongs into the log, if anything does."""
    caller: Caller | None = getattr(connection.state, "caller", None)
    names = "/".join(str(value) for value in connection.path_params.values())
    entry = {"action": endpoint_of(connection), "subject": names[:MOST_SUBJECT], "status": status}
    noted = []
    if caller is not None and (access_of(connection) or PUBLIC).audited:
        noted += _reads(connection, entry) or [entry]
    elif status in _LOCKED_OUT:
        left_out = log.failures.take(_address(connection))
        if left_out is not None:
            more = f" (and {left_out} more that were not written)" if left_out else ""
            noted.append({**entry, "subject": f"{names[:MOST_SUBJECT]}{more}".strip()})
    foreign: ForeignSecret | None = getattr(connection.state, "foreign_secret", None)
    if foreign is not None:
        subject = f"{names} {foreign.reference}"[:MOST_SUBJECT]
        noted.append({"action": FOREIGN_SECRET, "subject": subject, "status": HTTPStatus.FORBIDDEN})
    return noted


def _reads(connection: HTTPConnection, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A query may read tables of several tenants: each of them finds an entry with its own."""
    tables: dict[str, list[str]] = {}
    for tenant, table in getattr(connection.state, "tables_read", ()):
        tables.setdefault(tenant, []).append(f"{tenant}/{table}")
    return [{**entry, "tenant": tenant, "subject": " ".join(read)[:MOST_SUBJECT]} for tenant, read in tables.items()]


def _write(log: Audit, connection: HTTPConnection, noted: list[dict[str, Any]], request_id: str) -> None:
    caller: Caller | None = getattr(connection.state, "caller", None)
    who = {
        "at_us": time.time_ns() // 1000,
        "request_id": request_id,
        "who": "" if caller is None else caller.name,
        "role": "" if caller is None else caller.role,
        "from_address": _address(connection),
        "tenant": None if caller is None else _tenant(log, connection, caller, connection.path_params),
    }
    log.note(*({**who, **entry} for entry in noted))


def _address(connection: HTTPConnection) -> str:
    # A proxy that is trusted may say anything.
    return connection.client.host[:MOST_ADDRESS] if connection.client else ""


def _tenant(log: Audit, connection: HTTPConnection, caller: Caller, names: Mapping[str, Any]) -> str | None:
    """The tenant whose entry it is, also if an operator changed something of the tenant's."""
    named: str | None = names.get("tenant", names.get("tenant_id")) or getattr(connection.state, "about_tenant", None)
    import_id = str(names.get("import_id", ""))
    if caller.tenant is not None:
        return caller.tenant
    return log.tenant_of(import_id) if named is None and is_import_id(import_id) else named
