"""Rejected rows: listed, counted by reason, exported, replayed, amended, discarded."""

from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from millrace.api.bodies import FILE, takes
from millrace.api.bookkeeping import surely
from millrace.api.deps import (
    AmendmentsDep,
    ImportDep,
    ImportsDep,
    RejectedDep,
    ReplaysDep,
    SealingDep,
    guarded_router,
)
from millrace.api.jobs.rejected_rows import Choice
from millrace.api.repair.amendments import Asked
from millrace.api.repair.filled_rows import GivenRow, exact_values
from millrace.api.routes.imports import MOST_LISTED
from millrace.api.uploads.options import OptionsDep
from millrace.auth.access import allows
from millrace.model.names import checked_span
from millrace.model.roles import READER, WRITER
from millrace.read.error_pages import page
from millrace.read.export import export
from millrace.read.original_file import original_file
from millrace.read.reasons import count_by_reason

router = guarded_router(prefix="/v1", tags=["rejected rows"])
MOST_CHOSEN = 100_000
MOST_CORRECTED = 10_000
MOST_ROW_NUMBER = 10**18 - 1
FILE_FORMAT = "file"
RowNumber = Annotated[int, Field(ge=0, le=MOST_ROW_NUMBER)]
StateParameter = Annotated[Literal["open", "amended", "replayed", "discarded", "closed"] | None, Query()]


class Chosen(BaseModel):
    """Which of the import's rejected rows; without rule and rows, all that are still open."""

    model_config = ConfigDict(extra="forbid")
    rule: str | None = None
    rows: list[RowNumber] | None = Field(default=None, max_length=MOST_CHOSEN)
    span: str | None = None

    def choice(self) -> Choice:
        return Choice(self.rule, None if self.rows is None else frozenset(self.rows))


class Correction(BaseModel):
    """One rejected row by its number, and the values that replace its own."""

    model_config = ConfigDict(extra="forbid")
    row: RowNumber
    values: dict[str, Any]


class Corrections(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: list[Correction] = Field(min_length=1, max_length=MOST_CORRECTED)
    span: str | None = None


@router.get("/imports/{import_id}/errors")
@allows(READER, by_table=True, audited=True)
def list_errors(
    import_id: str,
    document: ImportDep,
    sealing: SealingDep,
    rejected: RejectedDep,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    state: StateParameter = None,
) -> dict[str, Any]:
    """The import's rejected rows, in the order of the file, with every reason; with `state`, only those."""
    states = rejected.states(import_id, state)
    found = page(sealing.errors(document["tenant"], document["table"]), import_id, cursor, limit, states)
    if not found.items and cursor is None and state is None:
        sealing.refuse_destroyed(document)
    return {"items": found.items, "next": found.next, "states": document.get("rejected_rows", {})}


@router.get("/imports/{import_id}/errors/reasons")
@allows(READER, by_table=True)
def count_errors(
    import_id: str, document: ImportDep, sealing: SealingDep, rejected: RejectedDep, state: StateParameter = None
) -> dict[str, Any]:
    """The rejected rows by reason, and how many of them are open."""
    errors = sealing.errors(document["tenant"], document["table"])
    found = count_by_reason(errors, import_id, rejected.states(import_id, state))
    if not found and state is None:
        sealing.refuse_destroyed(document)
    return {"items": found, "states": document.get("rejected_rows", {})}


@router.get("/imports/{import_id}/errors/export")
@allows(READER, by_table=True, audited=True)
def export_errors(
    import_id: str,
    document: ImportDep,
    sealing: SealingDep,
    rejected: RejectedDep,
    format: str = "csv",
    state: StateParameter = None,
) -> Response:
    """A report as CSV or JSON Lines; with `format=file` the original rows, to be corrected and sent to `…/errors/amend`."""
    errors, states = sealing.errors(document["tenant"], document["table"]), rejected.states(import_id, state)
    suffix = format
    if format == FILE_FORMAT:
        form = rejected.original_form(import_id)
        suffix = form.suffix
        lines = original_file(errors, import_id, form, states)
    else:
        lines = export(errors, import_id, format, states)
    if not page(errors, import_id, None, 1).items:
        sealing.refuse_destroyed(document)
    media = "text/csv" if suffix == "csv" else "application/x-ndjson"
    name = f'attachment; filename="{import_id}-rejected.{suffix}"'
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
    amendments: AmendmentsDep,
    options: OptionsDep,
    rule: str | None = None,
    span: Annotated[str | None, Query(max_length=600)] = None,
    add: bool = False,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Imports the request's body, corrected rows, in place of the rejected ones that they replace: by the number in the
    column `_row`, else by primary key. They get new versions. Rows that replace none are refused, unless `add` is true."""
    asked = Asked(rule, None if span is None else checked_span(span), add, idempotency_key)
    amended = await amendments.amend(document["id"], request.stream(), options, asked)
    return {**await surely(imports.find, amended.import_id), **amended.to_dict()}


@router.post("/imports/{import_id}/errors/amend-rows", status_code=202)
@allows(WRITER, by_table=True, audited=True)
async def amend_single_rows(
    document: ImportDep,
    request: Request,
    imports: ImportsDep,
    amendments: AmendmentsDep,
    corrections: Corrections,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Repairs the named rows: with the given values, and the values of the original row where none is given."""
    values = exact_values(await request.body())
    rows = [GivenRow(given.row, exact) for given, exact in zip(corrections.rows, values, strict=True)]
    asked = Asked(span=None if corrections.span is None else checked_span(corrections.span), key=idempotency_key)
    amended = await amendments.amend_rows(document["id"], rows, asked)
    return {**await surely(imports.find, amended.import_id), **amended.to_dict()}
