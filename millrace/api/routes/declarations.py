"""Tenants and tables: declared by ops, read from the store."""

import asyncio
from functools import partial
from typing import Any

from fastapi import Body, Response
from sqlalchemy import select

from millrace.api.bookkeeping import surely
from millrace.api.declarations.agreed_hooks import keep_agreed, refuse_strange_targets
from millrace.api.declarations.changes import changes_of
from millrace.api.declarations.over_limits import refuse_over_limits
from millrace.api.declarations.reading import read_agreement, read_table, refuse_changed_agreement, refuse_local_command
from millrace.api.declarations.sink_checks import sinks_to_try, try_sinks
from millrace.api.deps import (
    CallerDep,
    DefaultAppDep,
    LimitsDep,
    OpLogDep,
    PrivateTargetsDep,
    SharesDep,
    SinkContextDep,
    StoreDep,
    guarded_router,
)
from millrace.api.documents.tables import find_table, table_document, tables_of
from millrace.api.op_log import raise_refusal
from millrace.api.routes.subscriptions import check_url
from millrace.arrow.types import arrow_type
from millrace.auth.access import allows
from millrace.model.change_words import words_changed
from millrace.model.declared_documents import document_of
from millrace.model.documents import DeclarationWarning, refuse_warnings
from millrace.model.errors import Missing
from millrace.model.moments import iso
from millrace.model.names import checked_name
from millrace.model.ops import Applied
from millrace.model.ops.tables import DefineTable, DropTable, RestoreTable, TruncateTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.roles import ADMIN, OPERATOR, VIEWER
from millrace.model.table import Definition, TableDeclaration
from millrace.store import tables as t
from millrace.store.tables import departures

router = guarded_router(prefix="/v1", tags=["declarations"])
_TENANTS = select(t.tenants, departures.c.deleted_us, departures.c.erase_us).outerjoin(
    departures, departures.c.tenant == t.tenants.c.name
)


def answer_to(outcome: Applied | str, response: Response) -> dict[str, Any]:
    """What an op came to, or that it was only requested so far."""
    if isinstance(outcome, str):
        response.status_code = 202
        return {"op": outcome, "state": "requested"}
    return raise_refusal(outcome).result.to_dict()


@router.put("/tenants/{tenant}")
@allows(ADMIN, audited=True)
async def define_tenant(
    tenant: str,
    caller: CallerDep,
    store: StoreDep,
    op_log: OpLogDep,
    sink_context: SinkContextDep,
    default_app: DefaultAppDep,
    private_targets: PrivateTargetsDep,
    shares: SharesDep,
    response: Response,
    document: dict[str, Any] = Body(),
    strict: bool = False,
) -> dict[str, Any]:
    """Declares a tenant by its service agreement. Values that can hardly be meant are warnings, with `strict` refusals.

    Only an operator changes an agreement. An admin of the tenant may send it as it is, which changes nothing."""
    agreement, warnings = read_agreement(sink_context, default_app, tenant, document)
    before = await asyncio.to_thread(store.first, select(t.tenants).where(t.tenants.c.name == tenant))
    changes = [] if before is None else words_changed(dict(before.agreement), document_of(agreement))
    if caller.role != OPERATOR:
        refuse_changed_agreement(tenant, changes, is_new=before is None)
    if changes or before is None:
        refuse_local_command(caller, agreement)
    if strict:
        refuse_warnings(warnings)
    refuse_strange_targets(agreement)
    for target in agreement.notifications:
        await check_url(private_targets, target["url"], shares)
    answer = answer_to(await op_log.submit(DefineTenant(tenant, agreement=document_of(agreement))), response)
    if answer.get("changed"):
        await surely(keep_agreed, store, agreement)
        answer["changes"] = changes
    return {**answer, "warnings": [warning.to_dict() for warning in warnings]}


@router.get("/tenants")
@allows(VIEWER, by_table=True)
def list_tenants(caller: CallerDep, store: StoreDep) -> dict[str, Any]:
    rows = store.rows(_TENANTS.order_by(t.tenants.c.name))
    return {"items": [_tenant(row) for row in rows if caller.tenant in (None, row.name)]}


def _tenant(row: Any) -> dict[str, Any]:
    shown = {"name": row.name, "revision": row.revision}
    if row.deleted_us is None:
        return shown
    return {**shown, "deleted_at": iso(row.deleted_us), "restorable_until": iso(row.erase_us)}


@router.get("/tenants/{tenant}")
@allows(VIEWER)
def show_tenant(tenant: str, store: StoreDep) -> dict[str, Any]:
    with store.read() as connection:
        row = connection.execute(_TENANTS.where(t.tenants.c.name == tenant)).first()
        if row is None:
            raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")
        names = [definition.table.name for definition in tables_of(connection, tenant)]
    return {**_tenant(row), "tenant": row.name, "agreement": row.agreement, "tables": names}


@router.put("/tenants/{tenant}/tables/{table}")
@allows(ADMIN, audited=True)
async def define_table(
    tenant: str,
    table: str,
    store: StoreDep,
    sink_context: SinkContextDep,
    op_log: OpLogDep,
    shares: SharesDep,
    limits: LimitsDep,
    response: Response,
    document: dict[str, Any] = Body(),
    new_generation: bool = False,
    wait_turn: bool = True,
    strict: bool = False,
    check: bool = True,
) -> dict[str, Any]:
    """Declares a table, or changes its declaration. A new generation may change anything, and begins empty.

    Values that can hardly be meant are warnings, with `strict` refusals. New sinks are tried, unless `check` is false."""
    checked_name("tenant", tenant)

    def read() -> tuple[TableDeclaration, tuple[DeclarationWarning, ...], Any, list[str]]:
        with store.read() as connection:
            declaration, warnings = read_table(sink_context, connection, tenant, table, document)
            refuse_over_limits(connection, tenant, declaration, limits)
            changes = changes_of(connection, tenant, declaration, new_generation=new_generation)
            return declaration, warnings, sinks_to_try(connection, tenant, declaration), changes

    declaration, warnings, new_sinks, changes = await asyncio.to_thread(read)
    if new_sinks:
        attempt = partial(try_sinks, new_sinks, sink_context.for_tenant(tenant), really=check)
        warnings = (*warnings, *await shares.look_ups.run(attempt))
    if strict:
        refuse_warnings(warnings)
    op = DefineTable(tenant, table, declaration=declaration.to_dict(), new_generation=new_generation, wait=wait_turn)
    answer = answer_to(await op_log.submit(op), response)
    if answer.get("changed"):
        answer["changes"] = changes
    return {**answer, "warnings": [warning.to_dict() for warning in warnings]}


@router.post("/tenants/{tenant}/tables/{table}/truncate")
@allows(ADMIN, audited=True)
async def truncate_table(
    tenant: str, table: str, op_log: OpLogDep, response: Response, wait_turn: bool = True
) -> dict[str, Any]:
    """Empties the table: rows of every import before this go, also those still on their way."""
    return answer_to(await op_log.submit(TruncateTable(tenant, table, wait=wait_turn)), response)


@router.delete("/tenants/{tenant}/tables/{table}")
@allows(ADMIN, audited=True)
async def drop_table(
    tenant: str, table: str, op_log: OpLogDep, response: Response, wait_turn: bool = True
) -> dict[str, Any]:
    """Drops the table. It can be restored for some days."""
    return answer_to(await op_log.submit(DropTable(tenant, table, wait=wait_turn)), response)


@router.post("/tenants/{tenant}/tables/{table}/restore")
@allows(ADMIN, audited=True)
async def restore_table(tenant: str, table: str, op_log: OpLogDep, response: Response) -> dict[str, Any]:
    return answer_to(await op_log.submit(RestoreTable(tenant, table)), response)


@router.get("/tenants/{tenant}/tables/{table}/revisions")
@allows(VIEWER, by_table=True)
def table_history(tenant: str, table: str, store: StoreDep) -> dict[str, Any]:
    """Every definition the table ever had, the newest first."""
    where = (t.revisions.c.tenant == tenant, t.revisions.c.table_name == table)
    with store.read() as connection:
        find_table(connection, tenant, table)
        rows = list(connection.execute(select(t.revisions).where(*where).order_by(t.revisions.c.revision.desc())))
    return {"items": [_revision(row) for row in rows]}


def _revision(row: Any) -> dict[str, Any]:
    definition = Definition.from_json(row.definition.encode())
    shown = {"revision": row.revision, "generation": row.generation, "definition": row.fingerprint}
    columns = [{"name": c.name, "type": str(arrow_type(c)), "nullable": c.nullable} for c in definition.columns]
    return {**shown, "defined_at": iso(row.defined_us), "columns": columns, "declaration": definition.table.to_dict()}


@router.get("/tenants/{tenant}/tables")
@allows(VIEWER, by_table=True)
def list_tables(tenant: str, caller: CallerDep, store: StoreDep, sink_context: SinkContextDep) -> dict[str, Any]:
    with store.read() as connection:
        seen = [one for one in tables_of(connection, tenant) if caller.sees_table(one.table.name)]
        return {"items": [table_document(definition, sink_context) for definition in seen]}


@router.get("/tenants/{tenant}/tables/{table}")
@allows(VIEWER, by_table=True)
def show_table(tenant: str, table: str, store: StoreDep, sink_context: SinkContextDep) -> dict[str, Any]:
    with store.read() as connection:
        return table_document(find_table(connection, tenant, table), sink_context)


@router.get("/ops/{op_id}")
@allows(VIEWER)
def show_op(op_id: str, caller: CallerDep, store: StoreDep) -> dict[str, Any]:
    row = store.first(select(t.requests).where(t.requests.c.id == op_id))
    if row is None or caller.tenant not in (None, row.tenant):
        raise Missing(f"There is no op {op_id}.", code="no_op")
    state = ("waiting" if row.result else "requested") if not row.applied else "refused" if row.refusal else "applied"
    shown = {"op": row.id, "kind": row.kind, "tenant": row.tenant, "subject": row.subject, "state": state}
    return {**shown, "requested_at": iso(row.requested_us), "result": row.result, "refusal": row.refusal}
