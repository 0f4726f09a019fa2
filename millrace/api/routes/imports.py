"""Imports: sent in one request, watched, cancelled; their rejected rows."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from millrace.api.deps import CallerDep, PlatformDep, SessionsDep
from millrace.api.documents import import_document, import_documents
from millrace.api.options import AdmissionDep, OptionsDep
from millrace.api.platform import Platform
from millrace.api.sessions import Session
from millrace.api.tokens import Caller
from millrace.model import ops
from millrace.model.errors import Invalid, Missing
from millrace.model.imports import TERMINAL
from millrace.model.names import is_import_id
from millrace.read.error_pages import page
from millrace.read.export import export

router = APIRouter(prefix="/v1", tags=["imports"])
LONGEST_WAIT_SECONDS = 30.0
MOST_LISTED = 1000


def shown_import(platform: Platform, caller: Caller, import_id: str) -> dict[str, Any]:
    if not is_import_id(import_id):
        raise Missing(f"There is no import {import_id[:40]!r}.", code="no_import")
    with platform.store.read() as connection:
        document = import_document(connection, import_id)
    if caller.tenant not in (None, document["tenant"]):
        raise Missing(f"There is no import {import_id}.", code="no_import")
    return document


@router.post("/tenants/{tenant}/tables/{table}/imports", status_code=202)
async def import_file(
    tenant: str,
    table: str,
    request: Request,
    caller: CallerDep,
    platform: PlatformDep,
    sessions: SessionsDep,
    options: OptionsDep,
    admission: AdmissionDep,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Imports the request's body. Answers when every byte is in Kafka; the import then goes on by itself."""
    caller.must_see(tenant)
    length = int(request.headers["content-length"]) if request.headers.get("content-length", "").isdigit() else None
    begun = await sessions.begin(tenant, table, options, length, idempotency_key, admission)
    if isinstance(begun, Session):
        async with begun.busy:
            fresh = await sessions.from_start(begun)
            if isinstance(fresh, Session):
                await fresh.take_whole(request.stream())
                return await asyncio.to_thread(shown_import, platform, caller, fresh.imp.id)
            begun = fresh
    # All of it is here already: the body is read only so that its sender hears the answer.
    async for _ in request.stream():
        pass
    return await asyncio.to_thread(shown_import, platform, caller, begun.id)


@router.get("/imports")
def list_imports(
    caller: CallerDep,
    platform: PlatformDep,
    tenant: str | None = None,
    table: str | None = None,
    state: str | None = None,
    kind: str | None = None,
    span: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
) -> dict[str, Any]:
    if tenant is not None:
        caller.must_see(tenant)
    with platform.store.read() as connection:
        return {
            "items": import_documents(connection, tenant or caller.tenant, table, state, limit, kind=kind, span=span)
        }


@router.get("/imports/{import_id}")
async def show_import(
    import_id: str, request: Request, caller: CallerDep, platform: PlatformDep, wait: Annotated[float, Query(ge=0)] = 0
) -> dict[str, Any]:
    """The import; with `wait`, as soon as it has ended or the seconds are over."""
    deadline = asyncio.get_running_loop().time() + min(wait, LONGEST_WAIT_SECONDS)
    while True:
        ended = request.app.state.watch.ended(import_id)
        document = await asyncio.to_thread(shown_import, platform, caller, import_id)
        left = deadline - asyncio.get_running_loop().time()
        if document["state"] in TERMINAL or left <= 0:
            ended.cancel()
            return document
        await asyncio.wait([ended], timeout=left)


@router.post("/imports/{import_id}/cancel")
async def cancel_import(import_id: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    document = await asyncio.to_thread(shown_import, platform, caller, import_id)
    await platform.applied(ops.CANCEL_IMPORT, document["tenant"], import_id, {})
    return await asyncio.to_thread(shown_import, platform, caller, import_id)


@router.get("/imports/{import_id}/errors")
def list_errors(
    import_id: str,
    caller: CallerDep,
    platform: PlatformDep,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> dict[str, Any]:
    """The import's rejected rows, in the order of the file, with every reason."""
    document = shown_import(platform, caller, import_id)
    found = page(platform.home, document["tenant"], document["table"], import_id, cursor, limit)
    return {"items": found.items, "next": found.next}


@router.get("/imports/{import_id}/errors/export")
def export_errors(import_id: str, caller: CallerDep, platform: PlatformDep, format: str = "csv") -> Response:
    document = shown_import(platform, caller, import_id)
    if format not in ("csv", "jsonl"):
        raise Invalid(f"format is {format[:20]!r}.", remedy="Choose csv or jsonl.")
    lines = export(platform.home, document["tenant"], document["table"], import_id, format)
    media = "text/csv" if format == "csv" else "application/x-ndjson"
    name = f'attachment; filename="{import_id}-rejected.{format}"'
    return StreamingResponse(lines, media_type=media, headers={"Content-Disposition": name})
