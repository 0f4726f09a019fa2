"""Tenants erased, after they were deleted, with a receipt."""

from typing import Annotated, Any

from fastapi import Query

from millrace.api.declarations.reading import refuse_unconfirmed
from millrace.api.deps import EraserDep, StoreDep, guarded_router
from millrace.api.jobs.erasing import receipt_of
from millrace.auth.access import allows
from millrace.model.names import checked_name
from millrace.model.roles import OPERATOR

router = guarded_router(prefix="/v1", tags=["declarations"])
LONGEST_WAIT_SECONDS = 600.0


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
