"""What an agreement would change, what runs as documents, tenants deleted, restored and erased, the documents' schemas."""

from typing import Annotated, Any

from fastapi import Body, Query, Request, Response
from sqlalchemy import select

from millrace.api.declarations.reading import read_agreement, refuse_unconfirmed
from millrace.api.deps import DefaultAppDep, EraserDep, OpLogDep, SinkContextDep, StoreDep, guarded_router
from millrace.api.documents.tables import tables_of
from millrace.api.jobs.erasing import receipt_of
from millrace.api.routes.declarations import answer_to
from millrace.api.routes.diffing import no_difference
from millrace.auth.access import allows, public
from millrace.auth.audit import note_refusal
from millrace.declare.json_schemas import SCHEMAS
from millrace.model.change_words import words_changed
from millrace.model.declared_documents import document_of, table_document_of
from millrace.model.documents import refuse_warnings
from millrace.model.errors import Invalid, Refused
from millrace.model.names import checked_name
from millrace.model.ops.results import Refusal
from millrace.model.ops.tenants import DeleteTenant, RestoreTenant
from millrace.model.roles import OPERATOR, VIEWER
from millrace.sink.json_schemas import schema_named
from millrace.store import tables as t
from millrace.store.agreements import known_agreement

router = guarded_router(prefix="/v1", tags=["declarations"])
GRACE_DAYS = 7
MOST_GRACE_DAYS = 365
LONGEST_WAIT_SECONDS = 600.0


@router.post("/tenants/{tenant}/diff")
@allows(VIEWER)
def diff_tenant(
    tenant: str,
    store: StoreDep,
    sink_context: SinkContextDep,
    default_app: DefaultAppDep,
    request: Request,
    document: dict[str, Any] = Body(),
    strict: bool = False,
) -> dict[str, Any]:
    """What applying this agreement would change, or why it would be refused."""
    checked_name("tenant", tenant)
    before = store.first(select(t.tenants).where(t.tenants.c.name == tenant))
    answer = no_difference(None if before is None else before.revision)
    try:
        agreement, warnings = read_agreement(sink_context, default_app, tenant, document)
        answer["warnings"] = [warning.to_dict() for warning in warnings]
        if strict:
            refuse_warnings(warnings)
    except Refused as refused:
        note_refusal(request, refused)
        return {**answer, "refusal": Refusal.of(refused).reason}
    if before is None:
        return {**answer, "changes": [f"declare tenant {tenant}"]}
    return {**answer, "changes": words_changed(dict(before.agreement), document_of(agreement))}


@router.get("/tenants/{tenant}/export")
@allows(VIEWER, audited=True)
def export_tenant(tenant: str, store: StoreDep) -> dict[str, Any]:
    """What runs, as documents that can be applied again without changing anything: the agreement, then the tables."""
    with store.read() as connection:
        agreement = known_agreement(connection, tenant)
        tables = [{"tenant": tenant, **table_document_of(one.table)} for one in tables_of(connection, tenant)]
    return {"agreement": document_of(agreement), "tables": tables}


@router.delete("/tenants/{tenant}")
@allows(OPERATOR, audited=True)
async def delete_tenant(
    tenant: str, op_log: OpLogDep, response: Response, confirm: str = "", grace_days: int = GRACE_DAYS
) -> dict[str, Any]:
    """The tenant takes nothing new; what it has stays until the grace is over and can be restored until then.

    `confirm` repeats the tenant's name."""
    refuse_unconfirmed("Deleting", checked_name("tenant", tenant), confirm)
    if not 0 <= grace_days <= MOST_GRACE_DAYS:
        raise Invalid(f"grace_days is {grace_days}.", remedy=f"Give 0 to {MOST_GRACE_DAYS}.")
    return answer_to(await op_log.submit(DeleteTenant(tenant, grace_seconds=grace_days * 86_400)), response)


@router.post("/tenants/{tenant}/restore")
@allows(OPERATOR, audited=True)
async def restore_tenant(tenant: str, op_log: OpLogDep, response: Response) -> dict[str, Any]:
    checked_name("tenant", tenant)
    return answer_to(await op_log.submit(RestoreTenant(tenant)), response)


@router.post("/tenants/{tenant}/erase")
@allows(OPERATOR, audited=True)
async def erase_tenant(
    tenant: str,
    eraser: EraserDep,
    confirm: str = "",
    now: bool = False,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS)] = 30.0,
) -> dict[str, Any]:
    """Removes a deleted tenant everywhere: when its grace is over, or `now`. A sink that has not answered within `wait`
    seconds is given up. The answer says what went, what expires when, and what remains. `confirm` repeats the name."""
    refuse_unconfirmed("Erasing", checked_name("tenant", tenant), confirm)
    return await eraser.erase(tenant, now=now, wait=wait)


@router.get("/erasures/{tenant}")
@allows(OPERATOR)
def show_erasure(tenant: str, store: StoreDep) -> dict[str, Any]:
    """The receipt of a tenant that was erased."""
    return receipt_of(store, tenant)


@router.get("/schemas")
@public
def list_schemas() -> dict[str, Any]:
    return {"items": [{"name": name, "href": f"/v1/schemas/{name}"} for name in SCHEMAS]}


@router.get("/schemas/{name}")
@public
def show_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document, for editors; needs no token."""
    return schema_named(name)
