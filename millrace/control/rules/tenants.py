"""Tenants: defined by their agreements, deleted, restored and erased."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import rule
from millrace.control.state import Announce, State, Step, Tenant
from millrace.model.errors import Clash, Missing
from millrace.model.moments import iso
from millrace.model.ops import Op
from millrace.model.ops import tenants as ops

TWINS = "Names that differ only in case are refused."


@rule(ops.DefineTenant)
def define(state: State, op: ops.DefineTenant, at_us: int, partition: int) -> Step:
    if state.twin is not None:
        raise Clash(f"There is a tenant {state.twin!r} already.", remedy=TWINS)
    refuse_departed(state.tenant)
    before = state.tenant
    if before is not None and before.agreement == op.agreement:
        return state, (), ops.TenantDefined(op.tenant, before.revision, changed=False)
    revision = before.revision + 1 if before else 1
    tenant = Tenant(op.tenant, before.partition if before else partition, op.agreement, revision)
    event = Announce("tenant.defined", op.tenant, {"revision": revision})
    new_rules = before is not None and before.agreement.get("rules") != tenant.agreement.get("rules")
    result = ops.TenantDefined(op.tenant, revision, changed=True, rules_changed=new_rules)
    return replace(state, tenant=tenant), (event,), result


@rule(ops.DeleteTenant)
def delete(state: State, op: ops.DeleteTenant, at_us: int, partition: int) -> Step:
    """The tenant takes nothing new; its data stays until the grace period is over. Deleting it again changes nothing."""
    tenant = _known(state, op)
    if tenant.deleted_us is not None:
        return state, (), _gone(tenant, changed=False)
    erase_us = at_us + op.grace_seconds * 1_000_000
    deleted = replace(tenant, deleted_us=at_us, erase_us=erase_us)
    event = Announce("tenant.deleted", op.tenant, {"restorable_until": iso(erase_us)})
    return replace(state, tenant=deleted), (event,), _gone(deleted, changed=True)


@rule(ops.RestoreTenant)
def restore(state: State, op: ops.RestoreTenant, at_us: int, partition: int) -> Step:
    tenant = _known(state, op)
    if tenant.deleted_us is None:
        return state, (), ops.TenantRestored(op.tenant, changed=False)
    if tenant.erase_us is not None and at_us >= tenant.erase_us:
        raise Clash(
            f"Tenant {op.tenant!r} could be restored until {iso(tenant.erase_us)}.",
            remedy="Erase it, then declare it anew.",
            code="grace_over",
        )
    event = Announce("tenant.restored", op.tenant, {"revision": tenant.revision})
    back = replace(tenant, deleted_us=None, erase_us=None)
    return replace(state, tenant=back), (event,), ops.TenantRestored(op.tenant, changed=True)


@rule(ops.EraseTenant)
def erase(state: State, op: ops.EraseTenant, at_us: int, partition: int) -> Step:
    """Only a deleted tenant without imports under way, after its grace period or, with `now`, before its end. The store
    forgets it: later ops in the log meet a tenant that does not exist."""
    tenant = _known(state, op)
    if tenant.deleted_us is None or tenant.erase_us is None:
        raise Clash(f"Tenant {op.tenant!r} was not deleted.", remedy="Delete it first.", code="not_deleted")
    if at_us < tenant.erase_us and not op.now:
        raise Clash(
            f"Tenant {op.tenant!r} can be restored until {iso(tenant.erase_us)}.",
            remedy="Wait until then, or ask to erase it now.",
            code="grace_not_over",
        )
    if state.open_imports:
        raise Clash(
            f"{state.open_imports} imports of {op.tenant!r} are under way.",
            remedy="Wait, or ask again.",
            code="under_way",
        )
    return replace(state, tenant=None), (), ops.TenantErased(op.tenant)


def refuse_departed(tenant: Tenant | None) -> None:
    """Refuses to begin anything for a deleted tenant."""
    if tenant is not None and tenant.deleted_us is not None:
        raise Clash(
            f"Tenant {tenant.name!r} was deleted.",
            remedy=f"Restore it: possible until {iso(tenant.erase_us)}.",
            code="tenant_deleted",
        )


def _known(state: State, op: Op[Any]) -> Tenant:
    if state.tenant is None:
        raise Missing(f"There is no tenant {op.tenant!r}.", code="no_tenant")
    return state.tenant


def _gone(tenant: Tenant, *, changed: bool) -> ops.TenantDeleted:
    return ops.TenantDeleted(tenant.name, iso(tenant.deleted_us), iso(tenant.erase_us), changed)
