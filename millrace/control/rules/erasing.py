"""A tenant's last op: everything the store knows of it goes. What is behind it in the log begins anew."""

from dataclasses import replace

from millrace.control.rules import rule
from millrace.control.state import State, Step
from millrace.model.errors import Clash, Missing
from millrace.model.moments import iso
from millrace.model.ops.tenants import EraseTenant, TenantErased


@rule(EraseTenant)
def erase(state: State, op: EraseTenant, at_us: int, partition: int) -> Step:
    """Only of a tenant that was deleted and whose grace is over, or shall not be waited for; with nothing under way."""
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
