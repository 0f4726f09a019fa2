"""The audit log: who changed what, when, from where, and what came of it. Written before the caller has its answer.

Holds names only: no body, no query, no header but the request's id, so that no secret can get into it."""

import asyncio
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.auth.access import PUBLIC, access_of, endpoint_of
from millrace.auth.tokens import Caller
from millrace.model.moments import iso
from millrace.model.names import is_import_id, new_id
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.tables import audit

REQUEST_ID = b"x-request-id"
MOST_SUBJECT = 200
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_OPENED = 101


class Audit:
    """Entries that come at the same time are written in one transaction."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self._waiting: list[dict[str, Any]] = []
        self._adding, self._writing = threading.Lock(), threading.Lock()

    def note(self, entry: dict[str, Any]) -> None:
        """Returns when the entry is in the store."""
        with self._adding:
            self._waiting.append(entry)
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
    """Gives every request an id (its own if that is valid), and writes an entry for every change."""

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


async def _note(scope: Scope, status: int, request_id: str) -> None:
    connection = HTTPConnection(scope)
    caller: Caller | None = getattr(connection.state, "caller", None)
    if caller is None or not (access_of(connection) or PUBLIC).audited:
        return
    log: Audit = scope["app"].state.services.audit
    try:
        await asyncio.to_thread(_write, log, connection, caller, status, request_id)
    except SQLAlchemyError as error:
        # The change itself is done. Nothing else says that its entry is missing.
        observe("trouble", kind="audit", error=f"{request_id} {endpoint_of(connection)}: {error}"[:1000])


def _write(log: Audit, connection: HTTPConnection, caller: Caller, status: int, request_id: str) -> None:
    names = connection.path_params
    log.note(
        {
            "at_us": time.time_ns() // 1000,
            "request_id": request_id,
            "who": caller.name,
            "role": caller.role,
            "from_address": connection.client.host if connection.client else "",
            "tenant": _tenant(log, connection, caller, names),
            "action": endpoint_of(connection),
            "subject": "/".join(str(value) for value in names.values())[:MOST_SUBJECT],
            "status": status,
        }
    )


def _tenant(log: Audit, connection: HTTPConnection, caller: Caller, names: Mapping[str, Any]) -> str | None:
    """The tenant whose entry it is, also if an operator changed something of the tenant's."""
    named: str | None = names.get("tenant", names.get("tenant_id")) or getattr(connection.state, "about_tenant", None)
    import_id = str(names.get("import_id", ""))
    if caller.tenant is not None:
        return caller.tenant
    return log.tenant_of(import_id) if named is None and is_import_id(import_id) else named
