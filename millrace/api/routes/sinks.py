"""Where a table's rows end up: how each target is doing, and what can be done when one is not."""

import asyncio
from typing import Any

from fastapi import APIRouter

from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.documents import find_table
from millrace.api.platform import Platform
from millrace.model import ops
from millrace.model.errors import Missing
from millrace.model.sinks import DELTA_KIND, SinkTarget
from millrace.sink.parking import queue_facts, resume, waive

router = APIRouter(prefix="/v1/tenants/{tenant}/tables/{table}/sinks", tags=["sinks"])


@router.get("")
def list_sinks(tenant: str, table: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Each target: what waits for it, since when and why it takes nothing, the last version it has."""
    caller.must_see(tenant)
    return {"items": [_shown(platform, tenant, table, target) for target in _targets(platform, tenant, table)]}


@router.post("/{sink}/resume")
def resume_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Tries a parked target now instead of when its pause is over."""
    caller.must_see(tenant)
    target = _target(platform, tenant, table, sink)
    folder = platform.home.queue(target.kind, tenant, table, target.name)
    if folder.is_dir():
        resume(folder)
    return _shown(platform, tenant, table, target)


@router.post("/{sink}/waive")
async def waive_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Gives up what waits for the target: imports under way end without it, and say so."""
    caller.must_see(tenant)
    target = await asyncio.to_thread(_target, platform, tenant, table, sink)
    applied = await platform.applied(ops.WAIVE_SINK, tenant, table, {"sink": sink})
    waive(platform.home.queue(target.kind, tenant, table, target.name), applied.result["below"])
    return {"sink": sink, "imports": applied.result["waived"]}


def _targets(platform: Platform, tenant: str, table: str) -> tuple[SinkTarget, ...]:
    with platform.store.read() as connection:
        return find_table(connection, tenant, table).table.targets


def _target(platform: Platform, tenant: str, table: str, sink: str) -> SinkTarget:
    found = next((one for one in _targets(platform, tenant, table) if one.name == sink), None)
    if found is None:
        raise Missing(f"{tenant}/{table} has no sink {sink[:60]!r}.", code="no_sink")
    return found


def _shown(platform: Platform, tenant: str, table: str, target: SinkTarget) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": target.name, "kind": target.kind, "required": target.required}
    if target.kind == DELTA_KIND:
        return shown
    folder = platform.home.queue(target.kind, tenant, table, target.name)
    return {**shown, **(queue_facts(folder) if folder.is_dir() else {"waiting": 0})}
