"""Rejected rows: listed, counted by reason, exported, replayed, amended, discarded."""

import asyncio
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from millrace.api.bodies import FILE, takes
from millrace.api.deps import ImportDep, ImportsDep, ReplaysDep, SealingDep, SessionsDep, guarded_router
from millrace.api.jobs.rejected_rows import Choice
from millrace.api.routes.imports import MOST_LISTED, receive_whole
from millrace.api.uploads.options import OptionsDep
from millrace.auth.access import allows
from millrace.model.names import checked_span
from millrace.model.roles import READER, WRITER
from millrace.read.error_pages import page
from millrace.read.export import export
from millrace.read.reasons import count_by_reason

router = guarded_router(prefix="/v1", tags=["rejected rows"])
MOST_CHOSEN = 100_000


class Chosen(BaseModel):
    """Which of the import's rejected rows; without rule and rows, all that are still open."""

    model_config = ConfigDict(extra="forbid")
    rule: str | None = None
    rows: list[int] | None = Field(default=None, max_length=MOST_CHOSEN)
    span: str | None = None

    def choice(self) -> Choice:
        return Choice(self.rule, None if self.rows is None else frozenset(self.rows))


@router.get("/imports/{import_id}/errors")
@allows(READER, by_table=True, audited=True)
def list_errors(
    import_id: str,
    document: ImportDep,
    sealing: SealingDep,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> dict[str, Any]:
    """The import's rejected rows, in the order of the file, with every reason."""
    found = page(sealing.errors(document["tenant"], document["table"]), import_id, cursor, limit)
    if not found.items and cursor is None:
        sealing.refuse_destroyed(document)
    return {"items": found.items, "next": found.next}


@router.get("/imports/{import_id}/errors/reasons")
@allows(READER, by_table=True)
def count_errors(import_id: str, document: ImportDep, sealing: SealingDep) -> dict[str, Any]:
    found = count_by_reason(sealing.errors(document["tenant"], document["table"]), import_id)
    if not found:
        sealing.refuse_destroyed(document)
    return {"items": found}


@router.get("/imports/{import_id}/errors/export")
@allows(READER, by_table=True, audited=True)
def export_errors(import_id: str, document: ImportDep, sealing: SealingDep, format: str = "csv") -> Response:
    errors = sealing.errors(document["tenant"], document["table"])
    lines = export(errors, import_id, format)
    if not page(errors, import_id, None, 1).items:
        sealing.refuse_destroyed(document)
    media = "text/csv" if format == "csv" else "application/x-ndjson"
    name = f'attachment; filename="{import_id}-rejected.{format}"'
    return StreamingResponse(lines, media_type=media, headers={"Content-Disposition": name})


@router.post("/imports/{import_id}/errors/replay", status_code=202)
@allows(WRITER, by_table=True, audited=True)
async def replay_errors(document: ImportDep, chosen: Chosen, replays: ReplaysDep) -> dict[str, Any]:
    """Judges the rows again by the table's present definition. They keep their versions: newer rows stay."""
    span = None if chosen.span is None else checked_span(chosen.span)
    return await replays.replay(document["id"], chosen.choice(), span)


@router.post("/imports/{import_id}/errors/discard")
@allows(WRITER, by_table=True, audited=True)
async def discard_errors(document: ImportDep, chosen: Chosen, replays: ReplaysDep) -> dict[str, Any]:
    """Gives the rows up. They can still be read until their retention is over."""
    return await replays.discard(document["id"], chosen.choice())


@router.post("/imports/{import_id}/errors/amend", status_code=202)
@allows(WRITER, by_table=True, audited=True)
@takes(FILE)
async def amend_errors(
    document: ImportDep,
    request: Request,
    imports: ImportsDep,
    replays: ReplaysDep,
    sessions: SessionsDep,
    options: OptionsDep,
    rule: str | None = None,
    span: Annotated[str | None, Query(max_length=600)] = None,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Imports the request's body, corrected rows, in place of the rejected ones. They get new versions."""
    admission = await asyncio.to_thread(replays.amendment, document["id"], Choice(rule))
    admission["span"] = None if span is None else checked_span(span)
    target = document["tenant"], document["table"]
    return await receive_whole(request, imports, sessions, target, options, idempotency_key, admission)
