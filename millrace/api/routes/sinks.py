"""Where a table's rows end up: how each target is doing, and what can be done when one is not."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

from millrace.api.bookkeeping import surely
from millrace.api.declarations.sink_checks import try_sinks
from millrace.api.deps import OpLogDep, QueuesDep, SinkContextDep, StoreDep, guarded_router
from millrace.api.documents.tables import find_table
from millrace.auth.access import allows
from millrace.exchange.queues import Queues
from millrace.model.errors import Missing
from millrace.model.ops.tables import WaiveSink
from millrace.model.queues import OWN_SINKS, Backlog, QueueKey, QueueRecord
from millrace.model.roles import ADMIN, VIEWER
from millrace.model.sinks import ERROR_STORE, SinkTarget
from millrace.store.engine import ControlStore

router = guarded_router(prefix="/v1/tenants/{tenant}/tables/{table}/sinks", tags=["sinks"])
# Nobody declares it. It is shown while it takes nothing, and can be resumed and waived like the others.
ERRORS = SinkTarget(ERROR_STORE, ERROR_STORE)
NOTHING_WAITS = {
    "waiting": 0, "bytes": 0, "lag_seconds": None, "last_version": 0, "parked_since": None, "reason": None,
    "is_draining": False, "backfill": None,
}  # fmt: skip


@router.get("")
@allows(VIEWER, by_table=True)
def list_sinks(tenant: str, table: str, store: StoreDep, queues: QueuesDep) -> dict[str, Any]:
    """Each target: what waits for it, since when and why it takes nothing, the last version it has. Those that were taken
    from the table are there until they are drained."""
    records = queues.of_table(tenant, table)
    backlogs = queues.backlogs(tenant, table)
    known = {record.key: _standing(record, backlogs.get(record.key, Backlog())) for record in records}
    targets = _targets(store, tenant, table, records)
    if any(record.key.kind == ERROR_STORE and record.state.parked_since is not None for record in records):
        targets = [*targets, ERRORS]
    return {"items": [_shown(target, known.get(_key(tenant, table, target))) for target in targets]}


@router.post("/{sink}/resume")
@allows(ADMIN, audited=True)
def resume_sink(tenant: str, table: str, sink: str, store: StoreDep, queues: QueuesDep) -> dict[str, Any]:
    """Tries a parked target now instead of when its pause is over."""
    target = _target(store, queues, tenant, table, sink)
    key = _key(tenant, table, target)
    queues.ask_to_resume(key)
    record = queues.get(key)
    return _shown(target, None if record is None else _standing(record, queues.backlog(key)))


@router.post("/{sink}/waive")
@allows(ADMIN, audited=True)
async def waive_sink(
    tenant: str, table: str, sink: str, store: StoreDep, queues: QueuesDep, op_log: OpLogDep
) -> dict[str, Any]:
    """Gives up what waits for the target: imports under way end without it, and say so."""
    target = await asyncio.to_thread(_target, store, queues, tenant, table, sink)
    key = _key(tenant, table, target)
    is_known = await asyncio.to_thread(queues.get, key) is not None
    waived = await op_log.applied(WaiveSink(tenant, table, sink=sink, is_draining=is_known))
    await surely(queues.waive, key, waived.below)
    # The couriers take it away now, and not when the pause after the last failure is over.
    await surely(queues.ask_to_resume, key)
    return {"sink": sink, "imports": waived.waived}


@router.post("/{sink}/check")
@allows(ADMIN, audited=True)
def check_sink(
    tenant: str, table: str, sink: str, store: StoreDep, queues: QueuesDep, sink_context: SinkContextDep
) -> dict[str, Any]:
    """Does what a write will do, without leaving a trace; says what is in the way."""
    target = _target(store, queues, tenant, table, sink)
    if target.kind in OWN_SINKS:
        record = queues.get(_key(tenant, table, target))
        reason = None if record is None or record.state.parked_since is None else record.state.reason
        return {"sink": sink, "kind": target.kind, "ok": reason is None, "reason": reason}
    warnings = try_sinks([target], sink_context.for_tenant(tenant))
    return {"sink": sink, "kind": target.kind, "ok": not warnings, "reason": warnings[0].likely if warnings else None}


def _targets(store: ControlStore, tenant: str, table: str, records: list[QueueRecord]) -> list[SinkTarget]:
    with store.read() as connection:
        declared = find_table(connection, tenant, table).table.targets
    names = {(target.kind, target.name) for target in declared}
    leaving = [record.member.target for record in records if record.member is not None]
    return [*declared, *(target for target in leaving if (target.kind, target.name) not in names)]


def _target(store: ControlStore, queues: Queues, tenant: str, table: str, sink: str) -> SinkTarget:
    targets = _targets(store, tenant, table, queues.of_table(tenant, table))
    found = next((one for one in (*targets, ERRORS) if one.name == sink), None)
    if found is None:
        raise Missing(f"{tenant}/{table} has no sink {sink[:60]!r}.", code="no_sink")
    return found


def _key(tenant: str, table: str, target: SinkTarget) -> QueueKey:
    return QueueKey(target.kind, tenant, table, target.name)


def _shown(target: SinkTarget, standing: dict[str, Any] | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": target.name, "kind": target.kind, "required": target.required}
    return {**shown, **(standing or NOTHING_WAITS)}


def _standing(record: QueueRecord, backlog: Backlog) -> dict[str, Any]:
    lag = None if backlog.oldest is None else max(0.0, time.time() - backlog.oldest / 1e6)
    waits = {"waiting": backlog.waiting, "bytes": backlog.size, "lag_seconds": lag}
    member = record.member
    roster = {
        "is_draining": member is not None and not member.is_active,
        "backfill": None if member is None or member.backfill is None else asdict(member.backfill),
    }
    return {**asdict(record.state), **waits, "waived_below": record.waiver.below, **roster}
