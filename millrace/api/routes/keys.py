"""The key that seals what a tenant's rows are on their way: shown, rotated, destroyed."""

from typing import Any

from sqlalchemy import select

from millrace.api.declarations.reading import refuse_unconfirmed
from millrace.api.deps import SealingDep, StoreDep, guarded_router
from millrace.api.sealing import Sealing
from millrace.auth.access import allows
from millrace.model.errors import Clash, Missing
from millrace.model.imports import TERMINAL
from millrace.model.roles import ADMIN, OPERATOR
from millrace.seal.keyring import Keyring
from millrace.store import tables as t
from millrace.store.agreements import known_agreement
from millrace.store.engine import ControlStore

router = guarded_router(prefix="/v1", tags=["declarations"])


@router.get("/tenants/{tenant}/key")
@allows(ADMIN)
def show_key(tenant: str, store: StoreDep, sealing: SealingDep) -> dict[str, Any]:
    """Who keeps it, its version, and how many data keys it wraps; never the key itself."""
    keyring = _keyring(store, sealing, tenant)
    shown = {"tenant": tenant, "encryption": sealing.is_wanted(tenant), "key": keyring.kms.describe(tenant)}
    return {**shown, "data_keys": sum(1 for _ in keyring.keys.names(tenant))}


@router.post("/tenants/{tenant}/key/rotate")
@allows(ADMIN, audited=True)
def rotate_key(tenant: str, store: StoreDep, sealing: SealingDep) -> dict[str, Any]:
    """A new version of the key; every data key is wrapped by it, and nothing that they sealed is touched."""
    keyring = _keyring(store, sealing, tenant)
    keyring.kms.rotate(tenant)
    rewrapped = keyring.rewrap(tenant)
    return {"tenant": tenant, "key": keyring.kms.describe(tenant), "rewrapped": rewrapped}


@router.delete("/tenants/{tenant}/key")
@allows(OPERATOR, audited=True)
def destroy_key(tenant: str, store: StoreDep, sealing: SealingDep, confirm: str = "") -> dict[str, Any]:
    """Nobody can read again what it sealed: rejected rows, copies in Kafka, staged files. Rows in sinks stay. `confirm`
    repeats the tenant's name."""
    refuse_unconfirmed("Destroying the key of", tenant, confirm)
    keyring = _keyring(store, sealing, tenant)
    under_way = select(t.imports.c.id).where(t.imports.c.tenant == tenant, t.imports.c.state.not_in(TERMINAL))
    first = store.first(under_way.limit(1))
    if first is not None:
        raise Clash(
            f"Import {first.id} is still under way, and would be lost.",
            remedy="Wait for its end or cancel it.",
            code="under_way",
        )
    known = keyring.kms.describe(tenant)
    if known is None:
        raise Missing(f"Tenant {tenant!r} has no key.", code="no_tenant_key")
    sealing.discard_errors(tenant)
    certain = keyring.destroy(tenant)
    return {"tenant": tenant, "key": known, "destroyed": certain}


def _keyring(store: ControlStore, sealing: Sealing, tenant: str) -> Keyring:
    with store.read() as connection:
        known_agreement(connection, tenant)
    return sealing.keyring
