"""The erasure of a tenant: the store forgets it. Later ops in the log meet a tenant that does not exist."""

from dataclasses import replace

from millrace.control.rules import rule
from millrace.control.state import State, Step
from millrace.model.errors import Clash, Missing
from millrace.model.moments import iso
from millrace.model.ops.tenants import EraseTenant, TenantErased


@rule(EraseTenant)
def erase(state: State, op: EraseTenant, at_us: int, partition: int) -> Step:
    """Only a deleted tenant without imports under way, after its grace period or, with `now`, before its end."""
    tenant = state.tenant
    if tenant is None:
        raise Missing(f"There is no tenant {op.tenant!r}.", code="no_tenant")
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
    return replace(state, tenant=None), (), TenantErased(op.tenant)
