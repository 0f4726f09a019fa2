"""Usage by tenant and day, with what was agreed and how far behind the tenant is, and why."""

import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import Connection, select

from millrace.api.deps import QuotasDep, SinkSettingsDep, StoreDep, guarded_router
from millrace.auth.access import allows
from millrace.model.imports import ADMITTED, ALTER, PROCESSING, PUBLISHING, STOPPING
from millrace.model.names import checked_name
from millrace.model.roles import OPERATOR, VIEWER
from millrace.store import tables as t
from millrace.store.agreements import known_agreement
from millrace.store.tables import usage
from millrace.store.usage import COUNTED

router = guarded_router(prefix="/v1", tags=["usage"])
MOST_DAYS = 400
_BY_PLATFORM = (PROCESSING, PUBLISHING, STOPPING)
DAY = r"^\d{4}-\d{2}-\d{2}$"


@router.get("/tenants/{tenant}/usage")
@allows(VIEWER)
def show_usage(
    tenant: str,
    store: StoreDep,
    quotas: QuotasDep,
    sinks: SinkSettingsDep,
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = 30,
) -> dict[str, Any]:
    """Days in UTC, the newest first; days without any use are left out. `quotas`: agreed, or else the platform's own."""
    before = (datetime.now(UTC).date() - timedelta(days=days)).isoformat()
    used = select(usage).where(usage.c.tenant == tenant, usage.c.day > before)
    with store.read() as connection:
        agreement = known_agreement(connection, checked_name("tenant", tenant))
        rows = list(connection.execute(used.order_by(usage.c.day.desc())))
        lag = lag_of(connection, tenant, quotas.throttled_imports(tenant))
    agreed = {name: amount for name, amount in asdict(agreement.quotas).items() if amount is not None}
    in_force = {**asdict(quotas.limits(tenant)), "parked_bytes": sinks.parked_bytes, **agreed}
    return {"tenant": tenant, "quotas": in_force, "lag": lag, "days": [_document(row) for row in rows]}


@router.get("/usage")
@allows(OPERATOR)
def list_usage(store: StoreDep, day: Annotated[str, Query(pattern=DAY)]) -> dict[str, Any]:
    """What every tenant used on a day."""
    rows = store.rows(select(usage).where(usage.c.day == day).order_by(usage.c.tenant))
    return {"day": day, "items": [{"tenant": row.tenant, **_document(row)} for row in rows]}


def _document(row: Any) -> dict[str, Any]:
    counted = {name: getattr(row, name) for name in COUNTED}
    return {"day": row.day, **counted, "storage_bytes": row.storage_bytes}


def lag_of(connection: Connection, tenant: str, held: dict[str, float]) -> dict[str, Any]:
    """Of the imports under way: how long the one that waited longest was held back by what was agreed, and how long the
    platform has owed the end of the oldest that it has all of, or was not held back at all."""
    wanted = select(t.imports.c.id, t.imports.c.state, t.imports.c.begun_us).where(
        t.imports.c.tenant == tenant, t.imports.c.state.in_((ADMITTED, *_BY_PLATFORM)), t.imports.c.kind != ALTER
    )
    now_us = time.time_ns() // 1000
    rows = list(connection.execute(wanted))
    late = [(now_us - row.begun_us) / 1e6 - held.get(row.id, 0.0) for row in rows if row.state in _BY_PLATFORM]
    over = [held.get(row.id, 0.0) for row in rows]
    return {
        "open_imports": len(rows),
        "over_quota_seconds": round(max(over, default=0.0), 1),
        "platform_late_seconds": round(max(0.0, *late), 1) if late else 0.0,
    }
