"""Seed 002's two routes: a form upload, and what a tenant has uploaded."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.types import Message

from millrace.api.bodies import FILE, takes
from millrace.api.bookkeeping import surely
from millrace.api.declarations.default_app import DefaultApp
from millrace.api.deps import (
    AppFoldersDep,
    DefaultAppDep,
    ImportsDep,
    PlacesDep,
    SealingDep,
    SessionsDep,
    StoreDep,
    guarded_router,
)
from millrace.api.documents.tables import tables_of
from millrace.api.uploads.forms import read_form
from millrace.api.uploads.session import PIECE_BYTES, Session
from millrace.auth.access import allows
from millrace.control.rules.imports import DEFAULT_MAX_BYTES
from millrace.exchange.app_folders import AppFolders
from millrace.model.agreement import Agreement
from millrace.model.errors import Invalid, Missing, TooLarge
from millrace.model.names import checked_name
from millrace.model.roles import VIEWER, WRITER
from millrace.seal.keyring import Keyring
from millrace.staging.arrivals import Arrival, waiting_files
from millrace.staging.users import owner_of
from millrace.store.agreements import known_agreement
from millrace.store.engine import ControlStore

router = guarded_router(tags=["mysimbdp"])
MOST_LISTED = 1000
# What a form holds beside its file.
FORM_BYTES = 1 << 16
FORM = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "format": "binary"},
                    "table": {"type": "string"},
                    "app": {"type": "string"},
                },
            }
        }
    },
}


# The form is no parameter: the framework would read all of it before anybody has looked at the token.
@router.post("/upload-file/{tenant_id}", status_code=202, openapi_extra={"requestBody": FORM})
@allows(WRITER, audited=True)
@takes(FILE)
async def upload_file(
    tenant_id: str,
    request: Request,
    store: StoreDep,
    app_folders: AppFoldersDep,
    imports: ImportsDep,
    sealing: SealingDep,
    sessions: SessionsDep,
    places: PlacesDep,
    default_app: DefaultAppDep,
) -> dict[str, Any]:
    """Imports a form's file into the table the form names, or into the tenant's only one; where the agreement says
    `uploads_first`, or the platform is set up as seed 002 describes it, puts it into the `in` folder of the tenant's app."""
    agreement, limits = await asyncio.to_thread(_agreed, store, default_app, checked_name("tenant", tenant_id))
    stages = [one for one in agreement.by_app() if one.app is not None and one.app.uploads_first]
    if not limits and not stages:
        raise Missing(f"{tenant_id} has no table.", remedy="Apply a table's declaration first.", code="no_table")
    # What a program sees first is not yet a file of any table.
    most = DEFAULT_MAX_BYTES if stages else max(limit or DEFAULT_MAX_BYTES for limit in limits.values())
    spool = await asyncio.to_thread(places.spool)
    bounded = _bounded(request, most + FORM_BYTES)
    with sessions.receiving(tenant_id):
        async with read_form(bounded, spool) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise Invalid("The form has no file.", remedy="Send it in the form field `file`.")
            if stages:
                first = _app(form, tenant_id, stages)
                return await _stage(app_folders, first, file, sealing.keyring if agreement.encryption else None)
            table = _table(form, tenant_id, list(limits))
            begun = await sessions.begin(tenant_id, table, {"file_name": file.filename}, file.size, None)
            assert isinstance(begun, Session)
            await begun.take_whole(_pieces(file))
            return await surely(imports.find, begun.imp.id)


def _agreed(store: ControlStore, default_app: DefaultApp, tenant: str) -> tuple[Agreement, dict[str, int | None]]:
    """The agreement, and the largest file of each table."""
    with store.read() as connection:
        agreement = default_app.completed(known_agreement(connection, tenant))
        return agreement, {one.table.name: one.table.max_file_bytes for one in tables_of(connection, tenant)}


def _bounded(request: Request, most: int) -> Request:
    """The request, whose body is refused as soon as it is known to be larger."""
    refusal = TooLarge(f"The form takes more than the {most:,} bytes it may.", remedy="Split the file.")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise refusal
    taken = 0

    async def receive() -> Message:
        nonlocal taken
        message = await request.receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise refusal
        return message

    return Request(request.scope, receive)


def _table(form: FormData, tenant: str, names: list[str]) -> str:
    named = form.get("table")
    if isinstance(named, str) and named:
        return named
    if len(names) != 1:
        raise Invalid(
            f"{tenant} has {len(names)} tables: {', '.join(names)}.", remedy="Name one in the form field `table`."
        )
    return names[0]


def _app(form: FormData, tenant: str, stages: list[Agreement]) -> Agreement:
    """The agreement with the app whose `in` folder the file goes to."""
    known = {one.app.name: one for one in stages if one.app is not None}
    named = form.get("app")
    if isinstance(named, str) and named in known:
        return known[named]
    if named or len(known) != 1:
        apps = f"{len(known)} apps that see uploads first: {', '.join(known)}"
        raise Invalid(f"{tenant} has {apps}.", remedy="Name one of them in the form field `app`.", code="which_app")
    return stages[0]


async def _stage(
    app_folders: AppFolders, agreement: Agreement, file: UploadFile, keys: Keyring | None
) -> dict[str, Any]:
    tenant, app = agreement.tenant, agreement.app
    assert app is not None
    staging = app_folders(tenant, app.name)
    is_elsewhere = not app.runs_here
    await asyncio.to_thread(staging.make, owner_of(tenant), shared=is_elsewhere)
    with Arrival(staging, file.filename or "", keys) as arrival:
        async for piece in _pieces(file):
            await asyncio.to_thread(arrival.write, piece)
        kept = await asyncio.to_thread(arrival.keep)
    return {"tenant": tenant, "app": app.name, "file": kept.name, "bytes": file.size, "state": "staged"}


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(PIECE_BYTES):
        yield piece


@router.get("/tenant/{tenant_id}")
@allows(VIEWER)
def list_files(tenant_id: str, store: StoreDep, imports: ImportsDep, app_folders: AppFoldersDep) -> dict[str, Any]:
    """The tenant's files and what became of each; in `in` those that its client app has not taken yet."""
    with store.read() as connection:
        known_agreement(connection, checked_name("tenant", tenant_id))
    files = [
        {"file": d["file_name"], "import": d["id"], "table": d["table"], "state": d["state"], "rows": d["rows"]}
        for d in imports.listed(MOST_LISTED, tenant=tenant_id)
    ]
    waiting = [
        {**file, "app": staging.app}
        for staging in app_folders.all(tenant_id)
        for file in waiting_files(staging, MOST_LISTED)
    ][:MOST_LISTED]
    return {"tenant": tenant_id, "in": waiting, "files": files}
