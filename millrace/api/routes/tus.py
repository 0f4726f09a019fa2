"""Resumable uploads by the tus 1.0 protocol: creation, creation-with-upload, termination."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from millrace.api.deps import CallerDep, PlatformDep, SessionsDep
from millrace.api.options import AdmissionDep, OptionsDep
from millrace.api.routes.imports import shown_import
from millrace.api.sessions import Session
from millrace.model import ops
from millrace.model.errors import Clash, Invalid

router = APIRouter(prefix="/v1", tags=["resumable uploads"])
VERSION = {"Tus-Resumable": "1.0.0"}
ABILITIES = {"Tus-Version": "1.0.0", "Tus-Extension": "creation,creation-with-upload,creation-defer-length,termination"}
BODY_TYPE = "application/offset+octet-stream"


@router.options("/tenants/{tenant}/tables/{table}/uploads")
def abilities() -> Response:
    return Response(status_code=204, headers=VERSION | ABILITIES)


@router.post("/tenants/{tenant}/tables/{table}/uploads")
async def create_upload(
    tenant: str,
    table: str,
    request: Request,
    caller: CallerDep,
    sessions: SessionsDep,
    options: OptionsDep,
    admission: AdmissionDep,
    upload_length: Annotated[int | None, Header(ge=0)] = None,
    upload_defer_length: Annotated[int | None, Header()] = None,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    caller.must_see(tenant)
    if upload_length is None and upload_defer_length != 1:
        raise Invalid("The upload has no length.", remedy="Send Upload-Length, or Upload-Defer-Length: 1.")
    begun = await sessions.begin(tenant, table, options, upload_length, idempotency_key, admission)
    if not isinstance(begun, Session):
        headers = {**VERSION, "Location": f"/v1/uploads/{begun.id}", "Upload-Offset": str(upload_length or 0)}
        return Response(status_code=201, headers=headers)
    await sessions.keep(begun)
    if request.headers.get("content-type") == BODY_TYPE and begun.offset == 0:
        await _receive(request, begun)
    return Response(status_code=201, headers={**_state(begun), "Location": f"/v1/uploads/{begun.imp.id}"})


@router.head("/uploads/{import_id}")
async def upload_state(import_id: str, caller: CallerDep, platform: PlatformDep, sessions: SessionsDep) -> Response:
    document = shown_import(platform, caller, import_id)
    if document["state"] not in ("admitted", "receiving"):
        size = str(document.get("bytes", 0))
        return Response(status_code=200, headers={**VERSION, "Upload-Offset": size, "Upload-State": document["state"]})
    session = await sessions.resume(import_id)
    return Response(status_code=200, headers={**_state(session), "Cache-Control": "no-store"})


@router.patch("/uploads/{import_id}")
async def continue_upload(
    import_id: str,
    request: Request,
    caller: CallerDep,
    platform: PlatformDep,
    sessions: SessionsDep,
    upload_offset: Annotated[int, Header(ge=0)],
    upload_length: Annotated[int | None, Header(ge=0)] = None,
) -> Response:
    shown_import(platform, caller, import_id)
    session = await sessions.resume(import_id)
    if session.busy.locked():
        raise Clash(
            f"Upload {import_id} is being received already.", remedy="Wait until the other request ends.", code="busy"
        )
    if upload_offset != session.offset:
        raise Clash(
            f"The upload is at {session.offset}, not at {upload_offset}.",
            remedy="Ask with HEAD and go on there.",
            code="offset",
        )
    if session.length is None and upload_length is not None:
        session.length = upload_length
    await _receive(request, session)
    return Response(status_code=204, headers=_state(session))


@router.delete("/uploads/{import_id}")
async def terminate_upload(import_id: str, caller: CallerDep, platform: PlatformDep) -> Response:
    document = shown_import(platform, caller, import_id)
    await platform.applied(ops.CANCEL_IMPORT, document["tenant"], import_id, {})
    return Response(status_code=204, headers=VERSION)


async def _receive(request: Request, session: Session) -> None:
    async with session.busy:
        await session.take(request.stream())
        if session.length is not None and session.offset >= session.length:
            await session.end()


def _state(session: Session) -> dict[str, str]:
    length = {} if session.length is None else {"Upload-Length": str(session.length)}
    return {**VERSION, "Upload-Offset": str(session.offset), **length}
