"""Tenants: who they are and what was agreed with them."""

from dataclasses import replace

from millrace.control.state import Announce, State, Step, Tenant
from millrace.model.errors import Clash
from millrace.model.ops import Op

TWINS = "Names that differ only in case are refused."


def define(state: State, op: Op, at_us: int, partition: int) -> Step:
    if state.twin is not None:
        raise Clash(f"There is a tenant {state.twin!r} already.", remedy=TWINS)
    before = state.tenant
    if before is not None and before.agreement == op.body["agreement"]:
        return state, (), {"tenant": op.tenant, "revision": before.revision, "changed": False}
    revision = before.revision + 1 if before else 1
    tenant = Tenant(op.tenant, before.partition if before else partition, op.body["agreement"], revision)
    event = Announce("tenant.defined", op.tenant, {"revision": revision})
    return replace(state, tenant=tenant), (event,), {"tenant": op.tenant, "revision": revision, "changed": True}
