"""Where a table's rows end up: how each target is doing, and what can be done when one is not."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from millrace.api.deps import CallerDep, PlatformDep
from millrace.api.documents import find_table
from millrace.api.platform import Platform
from millrace.api.sink_checking import try_sinks
from millrace.exchange.queues import Backlog, QueueRecord
from millrace.model.errors import Missing
from millrace.model.ops.tables import WaiveSink
from millrace.model.queues import QueueKey
from millrace.model.sinks import DELTA_KIND, SinkTarget

router = APIRouter(prefix="/v1/tenants/{tenant}/tables/{table}/sinks", tags=["sinks"])
NOTHING_WAITS = {
    "waiting": 0, "bytes": 0, "lag_seconds": None, "last_version": 0, "parked_since": None, "reason": None,
    "is_draining": False, "backfill": None,
}  # fmt: skip


@router.get("")
def list_sinks(tenant: str, table: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Each target: what waits for it, since when and why it takes nothing, the last version it has. Those that were taken
    from the table are there until they are drained."""
    caller.must_see(tenant)
    records = platform.queues.of_table(tenant, table)
    backlogs = platform.queues.backlogs(tenant, table)
    known = {record.key: _standing(record, backlogs.get(record.key, Backlog())) for record in records}
    targets = _targets(platform, tenant, table, records)
    return {"items": [_shown(target, known.get(_key(tenant, table, target))) for target in targets]}


@router.post("/{sink}/resume")
def resume_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Tries a parked target now instead of when its pause is over."""
    caller.must_see(tenant)
    target = _target(platform, tenant, table, sink)
    key = _key(tenant, table, target)
    platform.queues.ask_to_resume(key)
    record = platform.queues.get(key)
    return _shown(target, None if record is None else _standing(record, platform.queues.backlog(key)))


@router.post("/{sink}/waive")
async def waive_sink(tenant: str, table: str, sink: str, caller: CallerDep, platform: PlatformDep) -> dict[str, Any]:
    """Gives up what waits for the target: imports under way end without it, and say so."""
    caller.must_see(tenant)
    target = await asyncio.to_thread(_target, platform, tenant, table, sink)
    key = _key(tenant, table, target)
    is_known = await asyncio.to_thread(platform.queues.get, key) is not None
    waived = await platform.applied(WaiveSink(tenant, table, sink=sink, is_draining=is_known))
    await asyncio.to_thread(platform.queues.waive, key, waived.below)
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


def _targets(platform: Platform, tenant: str, table: str, records: list[QueueRecord]) -> list[SinkTarget]:
    with platform.store.read() as connection:
        declared = find_table(connection, tenant, table).table.targets
    names = {(target.kind, target.name) for target in declared}
    leaving = [record.member.target for record in records if record.member is not None]
    return [*declared, *(target for target in leaving if (target.kind, target.name) not in names)]


def _target(platform: Platform, tenant: str, table: str, sink: str) -> SinkTarget:
    targets = _targets(platform, tenant, table, platform.queues.of_table(tenant, table))
    found = next((one for one in targets if one.name == sink), None)
    if found is None:
        raise Missing(f"{tenant}/{table} has no sink {sink[:60]!r}.", code="no_sink")
    return found


def _key(tenant: str, table: str, target: SinkTarget) -> QueueKey:
    return QueueKey(target.kind, tenant, table, target.name)


def _shown(target: SinkTarget, standing: dict[str, Any] | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": target.name, "kind": target.kind, "required": target.required}
    return shown if target.kind == DELTA_KIND else {**shown, **(standing or NOTHING_WAITS)}


def _standing(record: QueueRecord, backlog: Backlog) -> dict[str, Any]:
    lag = None if backlog.oldest is None else max(0.0, time.time() - backlog.oldest / 1e6)
    waits = {"waiting": backlog.waiting, "bytes": backlog.size, "lag_seconds": lag}
    member = record.member
    roster = {
        "is_draining": member is not None and not member.is_active,
        "backfill": None if member is None or member.backfill is None else asdict(member.backfill),
    }
    return {**asdict(record.state), **waits, "waived_below": record.waiver.below, **roster}
