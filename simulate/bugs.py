"""Planted bugs. Each is a mistake that someone could make in a rule, in the ledger or in a shell; each must be found."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from millrace.account import counting
from millrace.control import step as step_module
from millrace.control.rules import admitting, errors, imports, senders, spans, tables
from millrace.control.state import Send, State, Table
from millrace.model.errors import Clash
from millrace.model.imports import COMPLETED, STOPPING, Import
from millrace.model.ops.base import TableOp, TurnOp
from millrace.model.ops.rows import Append
from simulate import memory, queries, server, sinks, world
from simulate.schedule import Lived, run

Patch = tuple[Any, str, Any]
BUGS: dict[str, list[Patch]] = {}


def _bug(name: str, *patches: Patch) -> None:
    BUGS[name] = list(patches)


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for target, attribute, wrong in BUGS[name]:
            stack.enter_context(patch.object(target, attribute, wrong))
        yield


@dataclass(frozen=True)
class Found:
    """After how many schedules and seconds; `lived` is None if it was never found."""

    bug: str
    schedules: int
    seconds: float
    lived: Lived | None


def find(name: str, seconds: float, first_seed: int = 0) -> Found:
    began = time.monotonic()
    seed = first_seed
    with planted(name):
        while time.monotonic() - began < seconds:
            lived = run(seed)
            seed += 1
            if lived.violation is not None:
                return Found(name, seed - first_seed, time.monotonic() - began, lived)
    return Found(name, seed - first_seed, time.monotonic() - began, None)


# Order and versions.

_evaluations = iter(range(10**12))


def _by_wall_clock(table: Table | None, at_us: int) -> int:
    return max(1_800_000_000_000_000 + next(_evaluations), table.last_version + 1 if table else 0)


def _from_the_append_time(table: Table | None, at_us: int) -> int:
    return at_us


def _last_in_first_out(outcome: Any, at_us: int, partition: int) -> Any:
    state = replace(outcome.state, queue=outcome.state.queue[::-1])
    after = _go_on(replace(outcome, state=state), at_us, partition)
    return replace(after, state=replace(after.state, queue=after.state.queue[::-1]))


_go_on = step_module._go_on
_admit = admitting.admit


def _admit_without_turn(state: State, op: TableOp[Any], imp: Import, last_version: int) -> Any:
    after, effects = _admit(state, op, imp, last_version)
    table = after.table
    assert table is not None
    return replace(after, table=replace(table, open_imports=table.open_imports - 1)), effects


def _admit_without_key(state: State, op: TableOp[Any], imp: Import, last_version: int) -> Any:
    after, effects = _admit(state, op, replace(imp, idempotency_key=None), last_version)
    return after, effects


_bug(
    "versions by the evaluator's clock", *((module, "reserve", _by_wall_clock) for module in (imports, senders, tables))
)
_bug(
    "versions by append time alone",
    *((module, "reserve", _from_the_append_time) for module in (imports, senders, tables)),
)
_bug("the last in line goes first", (step_module, "_go_on", _last_in_first_out))
_bug(
    "what is under way does not hold its table",
    *((module, "admit", _admit_without_turn) for module in (imports, senders)),
)
_bug("an idempotency key is not remembered", (imports, "admit", _admit_without_key))

# Ending an import.

_settled = counting.has_settled


def _without_sinks(imp: Import, passed: Any, rejecting: Any) -> bool:
    return _settled(replace(imp, sinks=()), passed, rejecting)


def _without_markers(imp: Import, passed: Any, rejecting: Any) -> bool:
    return _settled(replace(imp, markers={}) if imp.state == STOPPING else imp, passed, rejecting)


def _without_rejects(imp: Import, passed: Any, rejecting: Any) -> bool:
    return _settled(imp, passed, lambda: 0)


def _count_again(counts: Any, known: Any, verdicts: Any) -> Any:
    return _count(counts, {}, verdicts)


def _always_completed(imp: Import, counts: Any, failure: Any, budget: Any = None) -> Any:
    return (imp.final, imp.error) if imp.final else (COMPLETED, None)


_count = counting.count
_bug("END before the last sink", (counting, "has_settled", _without_sinks))
_bug("END before the markers are passed", (counting, "has_settled", _without_markers))
_bug("END before the rejects are kept", (counting, "has_settled", _without_rejects))
_bug("a verdict told again is counted again", (memory, "count", _count_again))
_bug("the budget is not judged at the end", (imports, "outcome", _always_completed))

# The shells.


def _advance_unseen(self: Any, log: str, before: Any, after: Any) -> None:
    for partition, offset in after.items():
        self.store.positions[log, partition] = offset


def _start_without_outbox(self: Any) -> None:
    _start(self)
    self.controller._relaying = None
    forgetful = self.store.begin()
    forgetful.store.outbox, forgetful.store.closings = {}, {}
    forgetful.store.sent = len(forgetful.store.events)
    self.store.commit(forgetful)


def _save_without_senders(self: Any, before: State, after: State, at_us: int) -> None:
    _save(self, before, replace(after, senders=before.senders), at_us)


def _apply_and_tell_first(self: Any, records: Any, chance: Any) -> None:
    """Effects leave before the transaction has committed."""
    probe = self._world.store.begin()
    for record in records:
        before = probe.load(record.value)
        outcome = step_module.step(before, record.value, record.at_us, record.partition)
        probe.save(before, outcome.state, record.at_us)
        for number, (cause, effect) in enumerate(outcome.effects):
            if isinstance(effect, Send):
                probe.keep(number, cause, effect, record.at_us)
    for chunk in probe.store.outbox.values():
        self._world.append_chunk(chunk, 0)
    _apply(self, records, chance)


_crash = queries.Validating.crash


def _crash_and_look_again(self: Any, chance: Any) -> None:
    _crash(self, chance)
    self.plan()


_start, _save, _apply = world.World.start_server, memory.MemoryTransaction.save, server.Controller._apply
_bug("a second controller is not noticed", (memory.MemoryTransaction, "advance", _advance_unseen))
_bug("the outbox is forgotten on a restart", (world.World, "start_server", _start_without_outbox))
_bug("a sender's number is not stored with its rows", (memory.MemoryTransaction, "save", _save_without_senders))
_bug("chunks leave before the commit", (server.Controller, "_apply", _apply_and_tell_first))
_bug("facts are read before an old store has caught up", (server.Accountant, "is_up_to_date", True))
_bug("a batch that is run again looks at the stops anew", (queries.Validating, "crash", _crash_and_look_again))
_bug("what is stopped goes on being judged", (world.World, "stop", lambda self, import_id: None))

# Sinks.


def _put_ignoring_floor(self: Any, key: Any, new: Any) -> None:
    known = self.stored.get(key)
    if known is None or new.rank > known.rank:
        self.stored[key] = new


def _put_last_arrival(self: Any, key: Any, new: Any) -> None:
    if new.rank[0] > self.floor:
        self.stored[key] = new


def _put_without_tombstone(self: Any, key: Any, new: Any) -> None:
    _put(self, key, new)
    if key in self.stored and self.stored[key].row is None:
        del self.stored[key]


def _purge_all_tombstones(self: Any, safe_version: int) -> None:
    self.stored = {key: one for key, one in self.stored.items() if one.row is not None}


def _take_shown(self: Any, chunk: Any, found: Any, keyed: bool) -> None:
    _take(self, chunk._replace(publish="rolling"), found, keyed)


_put, _take = sinks.TableSink._put, sinks.TableSink._take
_bug("the floor is forgotten for late rows", (sinks.TableSink, "_put", _put_ignoring_floor))
_bug("the last to arrive wins", (sinks.TableSink, "_put", _put_last_arrival))
_bug("a delete leaves no tombstone", (sinks.TableSink, "_put", _put_without_tombstone))
_bug("tombstones are purged too early", (sinks.TableSink, "purge_tombstones", _purge_all_tombstones))
_bug("an atomic import shows at once", (sinks.TableSink, "_take", _take_shown))

# Spans, claims, senders.


def _claim_unchecked(state: State, op: TableOp[Any], rows: str, kind: str) -> State:
    try:
        return _claim(state, op, rows, kind)
    except Clash:
        return state


def _join_when_admitted(state: State, op: TurnOp[Any]) -> State:
    return state if not op.joined and state.queue else _join(state, op)


def _end_at_once(state: State, name: str, at_us: int) -> Any:
    idle = replace(state.spans[name], open_members=0)
    return _end_if_done(state.with_span(idle), name, at_us)


def _step_unchecked(state: State, op: Append) -> dict[str, int]:
    return {**state.senders, **{sender: last for sender, (_, last) in op.senders.items()}}


def _tell_first(self: Any, records: Any, chance: Any) -> list[queries.Effect]:
    return _sink_effects(self, records, chance)[::-1]


_claim, _join, _end_if_done = errors.claim, spans.join, spans._end_if_done
_sink_effects = queries.Sinking.effects
_bug("a claim is not checked", (errors, "claim", _claim_unchecked))
_bug("a span does not count members that wait", (spans, "join", _join_when_admitted))
_bug("a span ends while members are under way", (spans, "_end_if_done", _end_at_once))
_bug("rows of a sender are taken twice", (senders, "_in_step", _step_unchecked))
_bug("a sink tells before it has written", (queries.Sinking, "effects", _tell_first))
