"""Resumable uploads by the tus 1.0 protocol: creation, creation-with-upload, termination."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Request, Response
from sqlalchemy import select
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from millrace.api.bodies import FILE, takes
from millrace.api.bookkeeping import surely
from millrace.api.deps import GuardedRoute, ImportDep, OpLogDep, SessionsDep, StoreDep, guarded_router
from millrace.api.parameters import query_names
from millrace.api.problems import problem
from millrace.api.routes.imports import read_mark
from millrace.api.uploads.metadata import file_name_in
from millrace.api.uploads.options import AdmissionDep, OptionsDep
from millrace.api.uploads.session import Session
from millrace.api.uploads.sessions import Sessions
from millrace.auth.access import allows, public
from millrace.model.content import DIGEST_WANTED, FileMark, digest_header
from millrace.model.errors import Clash, Invalid, TooLarge
from millrace.model.imports import ADMITTED, RECEIVING, Import
from millrace.model.ops.imports import CancelImport
from millrace.model.roles import WRITER
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import find_import

VERSION = "1.0.0"
ABILITIES = {"Tus-Version": VERSION, "Tus-Extension": "creation,creation-with-upload,creation-defer-length,termination"}
BODY_TYPE = "application/offset+octet-stream"
MOST_LENGTHS = 10_000


class TusRoute(GuardedRoute):
    """Every answer, also a refusal, names the protocol's version; a request in another one is not looked at."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def naming_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Tus-Resumable"] = VERSION
            await send(message)

        if scope["method"] == "OPTIONS" or Headers(scope=scope).get("tus-resumable", VERSION) == VERSION:
            return await super().handle(scope, receive, naming_version)
        refusal = problem(412, "other_version", "The platform does not speak this version of tus.", f"Use {VERSION}.")
        refusal.headers["Tus-Version"] = VERSION
        await refusal(scope, receive, naming_version)


router = guarded_router(prefix="/v1", tags=["resumable uploads"], route_class=TusRoute)
# Of the latest uploads that were received whole: the store forgets an upload when its import is over, which may be
# before its sender, whose last answer was lost, asks.
_lengths: dict[str, int] = {}


@router.options("/tenants/{tenant}/tables/{table}/uploads")
@public
def abilities(tenant: str, table: str) -> Response:
    """What the server can do; it is the same for every table."""
    return Response(status_code=204, headers=ABILITIES)


@router.post("/tenants/{tenant}/tables/{table}/uploads")
@allows(WRITER, by_table=True, audited=True)
@takes(FILE)
async def create_upload(
    tenant: str,
    table: str,
    request: Request,
    sessions: SessionsDep,
    options: OptionsDep,
    admission: AdmissionDep,
    upload_length: Annotated[int | None, Header(ge=0)] = None,
    upload_defer_length: Annotated[int | None, Header()] = None,
    upload_metadata: Annotated[str | None, Header()] = None,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Begins an upload. The key `filename` of Upload-Metadata names the file, unless `file_name` does."""
    if upload_length is None and upload_defer_length != 1:
        raise Invalid("The upload has no length.", remedy="Send Upload-Length, or Upload-Defer-Length: 1.")
    named = file_name_in(upload_metadata, query_names(request.scope["route"].dependant))
    if named is not None:
        options = {"file_name": named, **options}
    with sessions.receiving(tenant):
        begun = await sessions.begin(tenant, table, options, upload_length, idempotency_key, admission)
        if not isinstance(begun, Session):
            await _refuse_unproven(request, sessions, begun, admission["digest"])
            headers = {"Location": f"/v1/uploads/{begun.id}", "Upload-Offset": str(upload_length or 0)}
            return Response(status_code=201, headers=headers)
        if not begun.busy.locked():
            # Nobody else sends just now: the file is this request's from here on.
            begun.declared = admission["digest"] or begun.declared
        await surely(begun.remember)
        # For an empty file no PATCH follows.
        comes_whole = begun.length == 0 or request.headers.get("content-type") == BODY_TYPE
        if comes_whole and begun.offset == 0 and not begun.busy.locked():
            await _receive(request, begun)
        return Response(status_code=201, headers={**_state(begun), "Location": f"/v1/uploads/{begun.imp.id}"})


async def _refuse_unproven(request: Request, sessions: Sessions, imp: Import, digest: str | None) -> None:
    """The key's import has its whole file. A request that comes again has to show that it is about the same one: by a digest,
    which the log has compared, or by the bytes that it brings. Of imports of earlier releases nothing is known."""
    known = FileMark.of(imp.options)
    if digest is not None or known.digest is None:
        return
    if request.headers.get("content-type") == BODY_TYPE:
        mark = await read_mark(request)
        if mark.length == known.length:
            return await sessions.refuse_unlike(imp.id, mark)
    raise Clash(
        f"Import {imp.id} has this idempotency key, and all of its file is here. Without a digest nobody can tell whether "
        "yours is the same.",
        remedy="Send the file's SHA-256 as Repr-Digest: sha-256=:BASE64:, or use a new key.",
        code=DIGEST_WANTED,
    )


@router.head("/uploads/{import_id}")
@allows(WRITER, by_table=True)
async def upload_state(import_id: str, document: ImportDep, store: StoreDep, sessions: SessionsDep) -> Response:
    """Where to go on; behind the end of an upload that was received whole. One that broke off for good is gone."""
    state = document["state"]
    if state in (ADMITTED, RECEIVING):
        headers = _state(await sessions.resume(import_id))
    else:
        length = await asyncio.to_thread(_whole_length, store, import_id)
        if length is None:
            return Response(status_code=410)
        headers = {"Upload-Offset": str(length), "Upload-Length": str(length), "Upload-State": state}
    return Response(status_code=200, headers={**headers, "Cache-Control": "no-store"})


def _whole_length(store: ControlStore, import_id: str) -> int | None:
    """None: not all of it was received. Where nobody knows any more, what the file's rows take."""
    with store.read() as connection:
        imp = find_import(connection, import_id)
        kept = connection.execute(select(t.uploads.c.length).where(t.uploads.c.import_id == import_id)).scalar()
    if imp is None or imp.announced is None:
        return None
    length = _lengths.get(import_id, kept)
    return imp.announced["bytes"] if length is None else length


@router.patch("/uploads/{import_id}")
@allows(WRITER, by_table=True)
@takes(FILE)
async def continue_upload(
    document: ImportDep,
    request: Request,
    sessions: SessionsDep,
    upload_offset: Annotated[int, Header(ge=0)],
    upload_length: Annotated[int | None, Header(ge=0)] = None,
) -> Response:
    if request.headers.get("content-type") != BODY_TYPE:
        return problem(415, "content_type", "The content type is not that of tus.", f"Send {BODY_TYPE}.")
    session = await sessions.resume(document["id"])
    if session.busy.locked():
        raise Clash(
            f"Upload {session.imp.id} is being received already.",
            remedy="Wait until the other request ends.",
            code="busy",
        )
    if upload_offset != session.offset:
        raise Clash(
            f"The upload is at {session.offset}, not at {upload_offset}.",
            remedy="Ask with HEAD and go on there.",
            code="offset",
        )
    if session.length is None and upload_length is not None:
        session.length = upload_length
    with sessions.receiving(session.imp.tenant):
        await _receive(request, session)
    return Response(status_code=204, headers=_state(session))


@router.delete("/uploads/{import_id}")
@allows(WRITER, by_table=True, audited=True)
async def terminate_upload(document: ImportDep, op_log: OpLogDep) -> Response:
    await op_log.applied(CancelImport(document["tenant"], document["id"]))
    return Response(status_code=204)


async def _receive(request: Request, session: Session) -> None:
    async with session.busy:
        await session.take(_declared(request, session))
        if session.length is not None and session.offset >= session.length:
            _note_length(session.imp.id, session.length)
            await session.end()


async def _declared(request: Request, session: Session) -> AsyncIterator[bytes]:
    """The body, unless it goes beyond the end that the upload was said to have."""
    end = session.offset
    async for piece in request.stream():
        end += len(piece)
        if session.length is not None and end > session.length:
            raise TooLarge(
                f"The upload was to have {session.length:,} bytes.", remedy="Send no more than Upload-Length."
            )
        yield piece


def _note_length(import_id: str, length: int) -> None:
    _lengths[import_id] = length
    if len(_lengths) > MOST_LENGTHS:
        del _lengths[next(iter(_lengths))]


def _state(session: Session) -> dict[str, str]:
    """With the digest of the bytes that are here, so that a sender that goes on can compare them with its file."""
    length = {"Upload-Defer-Length": "1"} if session.length is None else {"Upload-Length": str(session.length)}
    start = session.upload.digest.start
    digest = {} if start is None else {"Upload-Digest": digest_header(start.digest)}
    return {"Upload-Offset": str(session.offset), **length, **digest}
