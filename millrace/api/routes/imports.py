"""Imports: sent in one request, watched, cancelled."""

import asyncio
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Header, Query, Request

from millrace.api.bodies import FILE, declared_length, takes
from millrace.api.bookkeeping import surely
from millrace.api.deps import (
    ImportDep,
    ImportsDep,
    OpLogDep,
    SessionsDep,
    WatchDep,
    guarded_router,
)
from millrace.api.documents.imports import VisibleImports
from millrace.api.parameters import refuse_unknown
from millrace.api.uploads.options import AdmissionDep, OptionsDep
from millrace.api.uploads.session import Session
from millrace.api.uploads.sessions import Sessions
from millrace.auth.access import allows
from millrace.model.content import FileMark
from millrace.model.imports import HELD, KINDS, STATES, TERMINAL
from millrace.model.ops.imports import CancelImport
from millrace.model.roles import VIEWER, WRITER

router = guarded_router(prefix="/v1", tags=["imports"])
LONGEST_WAIT_SECONDS = 30.0
MOST_LISTED = 1000


@router.post("/tenants/{tenant}/tables/{table}/imports", status_code=202)
@allows(WRITER, by_table=True, audited=True)
@takes(FILE)
async def import_file(
    tenant: str,
    table: str,
    request: Request,
    imports: ImportsDep,
    sessions: SessionsDep,
    options: OptionsDep,
    admission: AdmissionDep,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Imports the request's body. Answers when every byte is in Kafka; the import then goes on by itself."""
    return await receive_whole(request, imports, sessions, (tenant, table), options, idempotency_key, admission)


async def receive_whole(
    request: Request,
    imports: VisibleImports,
    sessions: Sessions,
    target: tuple[str, str],
    options: dict[str, Any],
    key: str | None,
    admission: dict[str, Any],
) -> dict[str, Any]:
    with sessions.receiving(target[0]):
        length = declared_length(request) if "content-length" in request.headers else None
        begun = await sessions.begin(*target, options, length, key, admission)
        if isinstance(begun, Session):
            async with begun.busy:
                fresh = await sessions.from_start(begun)
                if isinstance(fresh, Session):
                    await fresh.take_whole(fresh.behind_known(request.stream(), admission["digest"]))
                    return await surely(imports.find, fresh.imp.id)
                begun = fresh
        # All of it is here already: the body is read to see that it is the same.
        await sessions.refuse_unlike(begun.id, await read_mark(request))
        return await asyncio.to_thread(imports.find, begun.id)


async def read_mark(request: Request) -> FileMark:
    """Reads a body to its end and keeps only its length and its digest."""
    digest, length = sha256(), 0
    async for piece in request.stream():
        digest.update(piece)
        length += len(piece)
    return FileMark(length=length, digest=digest.hexdigest())


@router.get("/imports")
@allows(VIEWER, by_table=True)
def list_imports(
    imports: ImportsDep,
    tenant: str | None = None,
    table: str | None = None,
    state: str | None = None,
    kind: str | None = None,
    span: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
) -> dict[str, Any]:
    refuse_unknown("state", [] if state is None else [state], STATES)
    refuse_unknown("kind", [] if kind is None else [kind], KINDS)
    return {"items": imports.listed(limit, tenant=tenant, table=table, state=state, kind=kind, span=span)}


@router.get("/imports/{import_id}")
@allows(VIEWER, by_table=True)
async def show_import(
    import_id: str,
    request: Request,
    imports: ImportsDep,
    watch: WatchDep,
    wait: Annotated[float, Query(ge=0)] = 0,
    or_held: bool = False,
) -> dict[str, Any]:
    """The import; with `wait`, as soon as it has ended (with `or_held` also: is held) or the seconds are over."""
    resting = (*TERMINAL, HELD) if or_held else TERMINAL
    deadline = asyncio.get_running_loop().time() + min(wait, LONGEST_WAIT_SECONDS)
    while True:
        ended = watch.ended(import_id)
        document = await asyncio.to_thread(imports.find, import_id)
        left = deadline - asyncio.get_running_loop().time()
        if document["state"] in resting or left <= 0:
            ended.cancel()
            return document
        await asyncio.wait([ended], timeout=left)


@router.post("/imports/{import_id}/cancel")
@allows(WRITER, by_table=True, audited=True)
async def cancel_import(import_id: str, document: ImportDep, op_log: OpLogDep, imports: ImportsDep) -> dict[str, Any]:
    await op_log.applied(CancelImport(document["tenant"], import_id))
    return await surely(imports.find, import_id)
