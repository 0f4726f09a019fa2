"""Seed 002's two routes: a form upload, and what a tenant has uploaded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Form, UploadFile

from millrace.api.declaring import agreement_of
from millrace.api.deps import CallerDep, PlatformDep, SessionsDep
from millrace.api.documents import import_documents, tables_of
from millrace.api.platform import Platform
from millrace.api.routes.imports import shown_import
from millrace.api.sessions import PIECE_BYTES, Session
from millrace.model.errors import Invalid
from millrace.model.names import checked_name
from millrace.seal.keyring import Keyring
from millrace.staging.arrivals import Arrival, waiting_files
from millrace.staging.folders import Staging
from millrace.staging.users import owner_of

router = APIRouter(tags=["mysimbdp"])
MOST_LISTED = 1000


@router.post("/upload-file/{tenant_id}", status_code=202)
async def upload_file(
    tenant_id: str,
    file: UploadFile,
    caller: CallerDep,
    platform: PlatformDep,
    sessions: SessionsDep,
    table: str | None = Form(None),
) -> dict[str, Any]:
    """Imports a form's file into the table the form names, or into the tenant's only one; where the agreement says
    `uploads_first`, puts it into the `in` folder of the tenant's client app."""
    caller.must_see(tenant_id)
    with platform.store.read() as connection:
        agreement = agreement_of(connection, checked_name("tenant", tenant_id))
        names = [definition.table.name for definition in tables_of(connection, tenant_id)]
    if agreement is not None and agreement.app is not None and agreement.app.uploads_first:
        keys = platform.sealing.keyring if agreement.encryption else None
        return await _stage(platform, tenant_id, file, keys)
    if table is None:
        if len(names) != 1:
            known = ", ".join(names) or "none"
            raise Invalid(
                f"{tenant_id} has {len(names)} tables: {known}.", remedy="Name one in the form field `table`."
            )
        table = names[0]
    begun = await sessions.begin(tenant_id, table, {"file_name": file.filename}, file.size, None)
    assert isinstance(begun, Session)
    await begun.take_whole(_pieces(file))
    return shown_import(platform, caller, begun.imp.id)


async def _stage(platform: Platform, tenant: str, file: UploadFile, keys: Keyring | None) -> dict[str, Any]:
    staging = Staging(platform.home, tenant)
    await asyncio.to_thread(staging.make, owner_of(tenant))
    with Arrival(staging, file.filename or "", keys) as arrival:
        async for piece in _pieces(file):
            await asyncio.to_thread(arrival.write, piece)
        kept = await asyncio.to_thread(arrival.keep)
    return {"tenant": tenant, "file": kept.name, "bytes": file.size, "state": "staged"}


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(PIECE_BYTES):
        yield piece


@router.get("/tenant/{tenant_id}")
def list_files(tenant_id: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """The tenant's files and what became of each; in `in` those that its client app has not taken yet."""
    caller.must_see(tenant_id)
    with platform.store.read() as connection:
        found = import_documents(connection, checked_name("tenant", tenant_id), None, None, MOST_LISTED)
    files = [
        {"file": d["file_name"], "import": d["id"], "table": d["table"], "state": d["state"], "rows": d["rows"]}
        for d in found
    ]
    waiting = waiting_files(Staging(platform.home, tenant_id), MOST_LISTED)
    return {"tenant": tenant_id, "in": [one.as_json() for one in waiting], "files": files}
