"""Quality: the report of an import, the trend of a table, and imports that wait to be released."""

from typing import Annotated, Any

from fastapi import Query

from millrace.account.quality import quality_of
from millrace.api.bookkeeping import surely
from millrace.api.deps import CallerDep, ExchangeDep, ImportDep, ImportsDep, OpLogDep, StoreDep, guarded_router
from millrace.api.documents.tables import find_table
from millrace.api.documents.trend import past_reports, trend
from millrace.auth.access import allows
from millrace.model.errors import Missing
from millrace.model.ops.imports import ReleaseImport
from millrace.model.roles import ADMIN, VIEWER
from millrace.store.records import find_import

router = guarded_router(prefix="/v1", tags=["quality"])
MOST_PAST = 500


@router.get("/imports/{import_id}/quality")
@allows(VIEWER, by_table=True)
def show_quality(import_id: str, document: ImportDep, store: StoreDep, exchange: ExchangeDep) -> dict[str, Any]:
    """What became of the rules that the import was admitted under; while it is under way, so far."""
    with store.read() as connection:
        imp = find_import(connection, import_id)
        definition = None if imp is None else exchange.definitions.read(imp.definition)
        if imp is None or definition is None or not definition.rules:
            raise Missing(f"Import {import_id} has no rules of quality.", remedy="Declare some.", code="no_report")
        report = imp.options.get("quality") or quality_of(connection, imp, definition, exchange)
    about = {word: document[word] for word in ("id", "tenant", "table", "state", "error", "rows")}
    return {**about, "released": imp.options.get("released"), "report": report}


@router.post("/imports/{import_id}/release")
@allows(ADMIN, audited=True)
async def release_import(
    import_id: str, document: ImportDep, caller: CallerDep, op_log: OpLogDep, imports: ImportsDep
) -> dict[str, Any]:
    """Lets a held import end as if its rules had been kept."""
    await op_log.applied(ReleaseImport(document["tenant"], import_id, by=caller.name))
    return await surely(imports.find, import_id)


@router.get("/tenants/{tenant}/tables/{table}/quality")
@allows(VIEWER, by_table=True)
def show_trend(
    tenant: str, table: str, store: StoreDep, last: Annotated[int, Query(ge=1, le=MOST_PAST)] = 20
) -> dict[str, Any]:
    """How the table's rules fared in its last imports, the newest first, and which way each of them goes."""
    with store.read() as connection:
        find_table(connection, tenant, table)
        return {"tenant": tenant, "table": table, **trend(past_reports(connection, tenant, table, last))}
