"""The key that seals what a tenant's rows are on their way: shown, rotated, destroyed."""

import asyncio
from typing import Any

from sqlalchemy import select

from millrace.api.deps import SealingDep, StoreDep, guarded_router
from millrace.api.sealing import Sealing
from millrace.auth.access import allows
from millrace.model.errors import Clash, Invalid, Missing
from millrace.model.imports import TERMINAL
from millrace.model.roles import ADMIN, OPERATOR
from millrace.store import tables as t
from millrace.store.engine import ControlStore

router = guarded_router(prefix="/v1", tags=["declarations"])


@router.get("/tenants/{tenant}/key")
@allows(ADMIN)
async def show_key(tenant: str, store: StoreDep, sealing: SealingDep) -> dict[str, Any]:
    """Who keeps it, its version, and how many data keys it wraps; never the key itself."""
    return await asyncio.to_thread(_shown, store, sealing, tenant)


@router.post("/tenants/{tenant}/key/rotate")
@allows(ADMIN, audited=True)
async def rotate_key(tenant: str, store: StoreDep, sealing: SealingDep) -> dict[str, Any]:
    """A new version of the key; every data key is wrapped by it, and nothing that they sealed is touched."""
    return await asyncio.to_thread(_rotated, store, sealing, tenant)


@router.delete("/tenants/{tenant}/key")
@allows(OPERATOR, audited=True)
async def destroy_key(tenant: str, store: StoreDep, sealing: SealingDep, confirm: str = "") -> dict[str, Any]:
    """Nobody can read again what it sealed: rejected rows, copies in Kafka, staged files. Rows in sinks stay. `confirm`
    repeats the tenant's name."""
    if confirm != tenant:
        raise Invalid(
            f"Destroying the key of {tenant!r} is not confirmed.",
            remedy="Send confirm with the tenant's name.",
            code="unconfirmed",
        )
    return await asyncio.to_thread(_destroyed, store, sealing, tenant)


def _shown(store: ControlStore, sealing: Sealing, tenant: str) -> dict[str, Any]:
    _refuse_unknown(store, tenant)
    keyring = sealing.keyring
    known = keyring.kms.describe(tenant)
    told = {"tenant": tenant, "encryption": sealing.is_wanted(tenant), "key": known}
    return {**told, "data_keys": keyring.count(tenant)}


def _rotated(store: ControlStore, sealing: Sealing, tenant: str) -> dict[str, Any]:
    _refuse_unknown(store, tenant)
    keyring = sealing.keyring
    keyring.kms.rotate(tenant)
    rewrapped = keyring.rewrap(tenant)
    return {"tenant": tenant, "key": keyring.kms.describe(tenant), "rewrapped": rewrapped}


def _destroyed(store: ControlStore, sealing: Sealing, tenant: str) -> dict[str, Any]:
    _refuse_unknown(store, tenant)
    under_way = select(t.imports.c.id).where(t.imports.c.tenant == tenant, t.imports.c.state.not_in(TERMINAL))
    with store.read() as connection:
        first = connection.execute(under_way.limit(1)).scalar()
    if first is not None:
        raise Clash(
            f"Import {first} is still under way, and would be lost.",
            remedy="Wait for its end or cancel it.",
            code="under_way",
        )
    keyring = sealing.keyring
    known = keyring.kms.describe(tenant)
    if known is None:
        raise Missing(f"Tenant {tenant!r} has no key.", code="no_tenant_key")
    sealing.discard_errors(tenant)
    certain = keyring.destroy(tenant)
    return {"tenant": tenant, "key": known, "destroyed": certain}


def _refuse_unknown(store: ControlStore, tenant: str) -> None:
    with store.read() as connection:
        if connection.execute(select(t.tenants.c.name).where(t.tenants.c.name == tenant)).first() is None:
            raise Missing(f"There is no tenant {tenant!r}.", code="no_tenant")
