"""Quality: the report of an import, the trend of a table, and imports that wait to be released."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query

from millrace.account.quality import quality_of
from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.documents import find_table
from millrace.api.platform import Platform
from millrace.api.routes.imports import shown_import
from millrace.api.trend import past_reports, trend
from millrace.model.errors import Missing
from millrace.model.ops.imports import ReleaseImport
from millrace.store.records import find_import

router = APIRouter(prefix="/v1", tags=["quality"])
MOST_PAST = 500


@router.get("/imports/{import_id}/quality")
def show_quality(import_id: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """What became of the rules that the import was admitted under; while it is under way, so far."""
    document = shown_import(platform, caller, import_id)
    about = {word: document[word] for word in ("id", "tenant", "table", "state", "error")}
    return {**about, "rows": document["rows"], "released": None, **_report(platform, import_id)}


def _report(platform: Platform, import_id: str) -> dict[str, Any]:
    with platform.store.read() as connection:
        imp = find_import(connection, import_id)
        definition = None if imp is None else platform.exchange.definitions.read(imp.definition)
        if imp is None or definition is None or not definition.rules:
            raise Missing(f"Import {import_id} has no rules of quality.", remedy="Declare some.", code="no_report")
        report = imp.options.get("quality") or quality_of(connection, imp, definition, platform.exchange)
    return {"released": imp.options.get("released"), "report": report}


@router.post("/imports/{import_id}/release")
async def release_import(import_id: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Lets a held import end as if its rules had been kept."""
    document = await asyncio.to_thread(shown_import, platform, caller, import_id)
    await platform.applied(ReleaseImport(document["tenant"], import_id, by=caller.name))
    return await asyncio.to_thread(shown_import, platform, caller, import_id)


@router.get("/tenants/{tenant}/tables/{table}/quality")
def show_trend(
    tenant: str,
    table: str,
    caller: CallerDep,
    platform: PlatformDep,
    last: Annotated[int, Query(ge=1, le=MOST_PAST)] = 20,
) -> dict[str, Any]:
    """How the table's rules fared in its last imports, the newest first, and which way each of them goes."""
    caller.must_see(tenant)
    with platform.store.read() as connection:
        find_table(connection, tenant, table)
        return {"tenant": tenant, "table": table, **trend(past_reports(connection, tenant, table, last))}
