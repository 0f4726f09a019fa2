"""The audit log, read: admins see their tenant's part of it."""

from typing import Annotated, Any

from fastapi import Query

from millrace.api.deps import AuditDep, CallerDep, guarded_router
from millrace.api.uploads.options import MOST_STORED
from millrace.auth.access import allows
from millrace.model.roles import ADMIN

router = guarded_router(prefix="/v1", tags=["audit"])


@router.get("/audit")
@allows(ADMIN)
def list_audit(
    caller: CallerDep,
    audit: AuditDep,
    tenant: str | None = None,
    after: Annotated[int, Query(ge=0, le=MOST_STORED)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    newest: bool = False,
) -> dict[str, Any]:
    """Entries in order, from `after` on; with `newest`, the last ones."""
    found = audit.page(caller.scope(tenant), after, limit, newest=newest)
    return {"items": found, "last": found[-1]["number"] if found else after}
