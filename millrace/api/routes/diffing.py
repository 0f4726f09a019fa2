"""What a declaration would change: compared with the table as it is, checked by the rules of the log, nothing done."""

from typing import Any

from fastapi import Body, Request

from millrace.api.declarations.changes import begins_anew, history_of, words_of
from millrace.api.declarations.over_limits import refuse_over_limits
from millrace.api.declarations.reading import read_table
from millrace.api.declarations.sink_checks import sinks_to_try, try_sinks
from millrace.api.deps import LimitsDep, SinkContextDep, StoreDep, guarded_router
from millrace.api.documents.tables import declared_table
from millrace.auth.access import allows
from millrace.auth.audit import note_refusal
from millrace.lake.log import load
from millrace.lake.reshape import delta_ddl
from millrace.model.documents import refuse_warnings
from millrace.model.errors import Refused
from millrace.model.evolution import check
from millrace.model.names import checked_name
from millrace.model.ops.results import Refusal
from millrace.model.roles import ADMIN
from millrace.model.table import Definition, TableDeclaration, define
from millrace.sink.delta.places import table_store
from millrace.sink.planned import sink_plans

router = guarded_router(prefix="/v1", tags=["declarations"])


@router.post("/tenants/{tenant}/tables/{table}/diff")
@allows(ADMIN, audited=True)
def diff_table(
    tenant: str,
    table: str,
    store: StoreDep,
    sink_context: SinkContextDep,
    limits: LimitsDep,
    request: Request,
    document: dict[str, Any] = Body(),
    new_generation: bool = False,
    strict: bool = False,
) -> dict[str, Any]:
    """What applying this declaration would do to the table and to its sinks, or why it would be refused."""
    checked_name("tenant", tenant)
    with store.read() as connection:
        before = declared_table(connection, tenant, table)
        history = history_of(connection, before) if before is not None else []
    answer = no_difference(None if before is None else before.revision)
    try:
        with store.read() as connection:
            declaration, warnings = read_table(sink_context, connection, tenant, table, document)
            refuse_over_limits(connection, tenant, declaration, limits)
            new_sinks = sinks_to_try(connection, tenant, declaration)
        warnings = (*warnings, *try_sinks(new_sinks, sink_context.for_tenant(tenant)))
        answer["warnings"] = [warning.to_dict() for warning in warnings]
        if strict:
            refuse_warnings(warnings)
        if before is None or new_generation:
            begun, after = _begun(before, declaration), _next(tenant, before, declaration, begins=True)
            return {**answer, **begun, "ddl": [*begun["ddl"], *sink_plans(before, after)]}
        files = len(load(table_store(sink_context, before)).files)
        changed = _changed(before, history, declaration, files)
        if changed:
            changed["ddl"] += sink_plans(before, _next(tenant, before, declaration, begins=False))
        return {**answer, **changed}
    except Refused as refused:
        note_refusal(request, refused)
        return {**answer, "refusal": Refusal.of(refused).reason}


def no_difference(revision: int | None) -> dict[str, Any]:
    """The answer before anything was compared; without a revision, nothing of that name is declared."""
    nothing: dict[str, Any] = {"changes": [], "ddl": [], "refusal": None, "warnings": []}
    return {"new": revision is None, "revision": revision or 0, **nothing}


def _begun(before: Definition | None, declaration: TableDeclaration) -> dict[str, Any]:
    if before is None:
        return {"changes": [f"declare table {declaration.name}"], "ddl": ["delta: create the table"]}
    return {"changes": begins_anew(before, declaration), "ddl": ["delta: all rows go"]}


def _next(tenant: str, before: Definition | None, declaration: TableDeclaration, *, begins: bool) -> Definition:
    """The definition that applying would lead to, as far as the sinks look at it."""
    if before is None:
        return define(tenant, declaration, 1)
    if begins:
        return define(tenant, declaration, before.revision + 1, before.generation + 1, before.floor)
    return define(tenant, declaration, before.revision + 1, before.generation, before.floor, before.fingerprint)


def _changed(
    before: Definition, history: list[Definition], declaration: TableDeclaration, files: int
) -> dict[str, Any]:
    if declaration == before.table:
        return {}
    found = check(before, history, declaration)
    return {"changes": words_of(found, before, declaration), "ddl": delta_ddl(found, files)}
