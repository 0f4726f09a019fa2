"""The audit log: who changed what, asked for rows or was locked out, when, from where, and what came of it. Written before
the caller has its answer.

Holds names only: no body, no query, no header but the request's id, so that no secret can get into it."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from sqlalchemy import insert, select
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
MOST_AT_ONCE = 500
MOST_ADDRESS = 64
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_OPENED = 101
_LOCKED_OUT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
FOREIGN_SECRET = "use of a secret"


Entry = dict[str, Any]


class _Waiting:
    """Entries that are to be written. `entries` may ask the store, so it is called by the thread that writes."""

    def __init__(self, entries: Callable[[], Iterable[Entry]]) -> None:
        self.entries = entries
        self.written: Future[None] = Future()
        # Nobody can cancel it now: an entry is written even if its request ends early.
        self.written.set_running_or_notify_cancel()


class Audit:
    """Entries are written in a thread of their own, many in one transaction, so that nobody is refused one. Whoever brings
    entries waits until they are written: no more of them wait than requests are under way."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self.failures = FailureLimit()
        self._waiting: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, "audit")

    def note(self, *entries: dict[str, Any]) -> None:
        """Returns when the entries are in the store."""
        self.noted(lambda: entries).result()

    def noted(self, entries: Callable[[], Iterable[Entry]]) -> "Future[None]":
        """Done when the entries are in the store. They get there even if nobody waits."""
        waiting = _Waiting(entries)
        self._waiting.append(waiting)
        self._thread.submit(self._write_waiting)
        return waiting.written

    def close(self) -> None:
        """Returns when every entry is in the store."""
        self._thread.shutdown()

    def _write_waiting(self) -> None:
        """One call follows each entry. The first of them writes what waits by then; the others find nothing left."""
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]
        if taken:
            self._write(taken)

    def _write(self, taken: list[_Waiting]) -> None:
        try:
            entries = [entry for one in taken for entry in one.entries()]
            with self._store.write() as connection:
                connection.execute(insert(audit), entries)
        except Exception as error:
            if len(taken) == 1:
                taken[0].written.set_exception(error)
                return
            # One that cannot be written must not take the others with it.
            for one in taken:
                self._write([one])
        else:
            for one in taken:
                one.written.set_result(None)

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
        has_answer = False

        async def noting(message: Message) -> None:
            nonlocal has_answer
            status = _status_of(message)
            if status is not None:
                has_answer = True
                await _note(scope, status, request_id)
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID, request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            # The answer to a failure is made further out. What the request changed before is noted here.
            if not has_answer:
                await _note(scope, HTTPStatus.INTERNAL_SERVER_ERROR, request_id)
            raise


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
    who = _who(connection, request_id)
    try:
        written = log.noted(lambda: [{**who, "tenant": _tenant(log, connection), **entry} for entry in noted])
        await asyncio.shield(asyncio.wrap_future(written))
    except Exception as error:
        # The change itself is done. Nothing else says that its entry is missing.
        observe("trouble", kind="audit", error=f"{request_id} {endpoint_of(connection)}: {error}"[:1000])


def _noted(log: Audit, connection: HTTPConnection, status: int) -> list[dict[str, Any]]:
    """What of this request belongs into the log, if anything does."""
    caller: Caller | None = getattr(connection.state, "caller", None)
    names = "/".join(str(value) for value in connection.path_params.values())
    entry = {"action": endpoint_of(connection), "subject": names[:MOST_SUBJECT], "status": status}
    noted = []
    if status in _LOCKED_OUT:
        left_out = log.failures.take(_address(connection))
        if left_out is not None:
            more = f" (and {left_out} more that were not written)" if left_out else ""
            noted.append({**entry, "subject": f"{names[:MOST_SUBJECT]}{more}".strip()})
    elif caller is not None and (access_of(connection) or PUBLIC).audited:
        noted += _reads(connection, entry) or [entry]
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


def _who(connection: HTTPConnection, request_id: str) -> Entry:
    caller: Caller | None = getattr(connection.state, "caller", None)
    return {
        "at_us": time.time_ns() // 1000,
        "request_id": request_id,
        "who": "" if caller is None else caller.name,
        "role": "" if caller is None else caller.role,
        "from_address": _address(connection),
    }


def _address(connection: HTTPConnection) -> str:
    # A proxy that is trusted may say anything.
    return connection.client.host[:MOST_ADDRESS] if connection.client else ""


def _tenant(log: Audit, connection: HTTPConnection) -> str | None:
    """The tenant whose entry it is, also if an operator changed something of the tenant's."""
    caller: Caller | None = getattr(connection.state, "caller", None)
    if caller is None:
        return None
    names: Mapping[str, Any] = connection.path_params
    named: str | None = names.get("tenant", names.get("tenant_id")) or getattr(connection.state, "about_tenant", None)
    import_id = str(names.get("import_id", ""))
    if caller.tenant is not None:
        return caller.tenant
    return log.tenant_of(import_id) if named is None and is_import_id(import_id) else named
