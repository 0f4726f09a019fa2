"""Usage by tenant and day, with what was agreed and how far behind the tenant is, and why."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from millrace.api.deps import QuotasDep, StoreDep, guarded_router
from millrace.api.jobs.metering import lag_of, usage_of, usage_of_all
from millrace.auth.access import allows
from millrace.model.names import checked_name
from millrace.model.roles import OPERATOR, VIEWER
from millrace.store.agreements import known_agreement

router = guarded_router(prefix="/v1", tags=["usage"])
MOST_DAYS = 400
DAY = r"^\d{4}-\d{2}-\d{2}$"


@router.get("/tenants/{tenant}/usage")
@allows(VIEWER)
def show_usage(
    tenant: str, store: StoreDep, quotas: QuotasDep, days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = 30
) -> dict[str, Any]:
    """Days in UTC, the newest first."""
    with store.read() as connection:
        agreement = known_agreement(connection, checked_name("tenant", tenant))
        found = usage_of(connection, tenant, days)
        lag = lag_of(connection, tenant, quotas.throttled_imports(tenant))
    return {"tenant": tenant, "quotas": asdict(agreement.quotas), "lag": lag, "days": found}


@router.get("/usage")
@allows(OPERATOR)
def list_usage(store: StoreDep, day: Annotated[str, Query(pattern=DAY)]) -> dict[str, Any]:
    """What every tenant used on a day."""
    with store.read() as connection:
        return {"day": day, "items": usage_of_all(connection, day)}
