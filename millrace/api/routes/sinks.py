"""Where a table's rows end up: how each target is doing, and what can be done when one is not."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.documents import find_table
from millrace.api.platform import Platform
from millrace.api.sink_checking import try_sinks
from millrace.deliver.queue import queue_facts, resume, waive
from millrace.deliver.roster import Member, read_member
from millrace.model.errors import Missing
from millrace.model.ops.tables import WaiveSink
from millrace.model.sinks import DELTA_KIND, SinkTarget

router = APIRouter(prefix="/v1/tenants/{tenant}/tables/{table}/sinks", tags=["sinks"])
NOTHING_WAITS = {"waiting": 0, "bytes": 0, "lag_seconds": None, "last_version": 0, "parked_since": None, "reason": None}


@router.get("")
def list_sinks(tenant: str, table: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Each target: what waits for it, since when and why it takes nothing, the last version it has. Those that were taken
    from the table are there until they are drained."""
    caller.must_see(tenant)
    return {"items": [_shown(platform, tenant, table, target) for target in _targets(platform, tenant, table)]}


@router.post("/{sink}/resume")
def resume_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Tries a parked target now instead of when its pause is over."""
    caller.must_see(tenant)
    target = _target(platform, tenant, table, sink)
    folder = _folder(platform, tenant, table, target)
    if folder.is_dir():
        resume(folder)
    return _shown(platform, tenant, table, target)


@router.post("/{sink}/waive")
async def waive_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Gives up what waits for the target: imports under way end without it, and say so."""
    caller.must_see(tenant)
    target = await asyncio.to_thread(_target, platform, tenant, table, sink)
    folder = _folder(platform, tenant, table, target)
    waived = await platform.applied(WaiveSink(tenant, table, sink=sink, is_draining=folder.is_dir()))
    waive(folder, waived.below)
    return {"sink": sink, "imports": waived.waived}


@router.post("/{sink}/check")
def check_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Does what a write will do, without leaving a trace; says what is in the way."""
    caller.must_see(tenant)
    target = _target(platform, tenant, table, sink)
    if target.kind == DELTA_KIND:
        return {"sink": sink, "kind": target.kind, "ok": True, "reason": None}
    doubts = try_sinks([target], platform.sink_context)
    return {"sink": sink, "kind": target.kind, "ok": not doubts, "reason": doubts[0].likely if doubts else None}


def _targets(platform: Platform, tenant: str, table: str) -> list[SinkTarget]:
    with platform.store.read() as connection:
        declared = find_table(connection, tenant, table).table.targets
    names = {(target.kind, target.name) for target in declared}
    leaving = [member.target for member in _members(platform, tenant, table)]
    return [*declared, *(target for target in leaving if (target.kind, target.name) not in names)]


def _members(platform: Platform, tenant: str, table: str) -> list[Member]:
    found = [read_member(folder) for folder in sorted(platform.exchange.places.parked.glob(f"*/{tenant}/{table}/*"))]
    return [member for member in found if member is not None]


def _target(platform: Platform, tenant: str, table: str, sink: str) -> SinkTarget:
    found = next((one for one in _targets(platform, tenant, table) if one.name == sink), None)
    if found is None:
        raise Missing(f"{tenant}/{table} has no sink {sink[:60]!r}.", code="no_sink")
    return found


def _folder(platform: Platform, tenant: str, table: str, target: SinkTarget) -> Path:
    return platform.exchange.places.queue(target.kind, tenant, table, target.name)


def _shown(platform: Platform, tenant: str, table: str, target: SinkTarget) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": target.name, "kind": target.kind, "required": target.required}
    if target.kind == DELTA_KIND:
        return shown
    folder = _folder(platform, tenant, table, target)
    member = read_member(folder)
    standing = {
        "is_draining": member is not None and not member.is_active,
        "backfill": None if member is None or member.backfill is None else asdict(member.backfill),
    }
    return {**shown, **(queue_facts(folder) if folder.is_dir() else NOTHING_WAITS), **standing}
