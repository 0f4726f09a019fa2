"""Rejected rows that are replayed, amended or discarded. An op claims the rows, so that nothing happens to them twice."""

from dataclasses import replace
from typing import Any

from millrace.control.claims import WAY_OF, ClosedRows, bitmap_of
from millrace.control.rules import rule
from millrace.control.rules.admitting import admit, one_more_import, received
from millrace.control.rules.tables import known_table
from millrace.control.rules.tenants import refuse_departed
from millrace.control.state import Announce, State, Step
from millrace.model.errors import Clash, Missing
from millrace.model.imports import AMEND, COMPLETED, DISCARD, REPLAY, REPLAYABLE_US, Import
from millrace.model.ops.base import TableOp
from millrace.model.ops.results import ImportStatus
from millrace.model.ops.rows import DiscardErrors, ReplayBegun, ReplayErrors

# Rows that were rejected in so many replays in a row can only be amended or discarded.
MOST_REPLAYS = 10


@rule(ReplayErrors)
def replay(state: State, op: ReplayErrors, at_us: int, partition: int) -> Step:
    """Rows keep the version they had, so they never replace newer ones. There is one chunk for each original chunk."""
    table = known_table(state, op)
    refuse_departed(state.tenant)
    state = one_more_import(state)
    origin = origin_of(state, op)
    depth = int(origin.options.get("replays", 0)) + 1
    if depth > MOST_REPLAYS:
        raise Clash(
            f"These rows were replayed {MOST_REPLAYS} times.", remedy="Amend or discard them.", code="replayed_enough"
        )
    if op.first_version <= max(table.floor, at_us - REPLAYABLE_US):
        raise Clash(
            f"The rejected rows are older than {REPLAYABLE_US // 86_400_000_000} days, or than the last time "
            f"{table.tenant}/{table.name} was emptied.",
            remedy="Amend them: corrected rows get a new version.",
            code="below_floor",
        )
    again = received(table, op, REPLAY, origin.first_version, at_us, chunks=op.chunks, rows=op.rows_count)
    options = {"replays": depth, "rows": op.rows, "deletes": origin.deletes, "written": origin.written}
    imp = replace(again, versions=origin.versions, options=options, of=origin.id)
    after, effects = admit(claim(state, op, op.rows, REPLAY), op, imp, 0)
    return after, effects, ReplayBegun(imp.id, origin.id)


@rule(DiscardErrors)
def discard(state: State, op: DiscardErrors, at_us: int, partition: int) -> Step:
    table, origin = known_table(state, op), origin_of(state, op)
    begun = received(table, op, DISCARD, 0, at_us, chunks=0)
    imp = replace(begun, definition=origin.definition, state=COMPLETED, sinks=(), ended_us=at_us, of=origin.id)
    data = {"table": f"{op.tenant}/{op.table}", "kind": DISCARD, "of": origin.id, "discarded": len(bitmap_of(op.rows))}
    after = claim(state, op, op.rows, DISCARD).with_import(imp)
    return after, (Announce(f"import.{COMPLETED}", imp.id, data),), ImportStatus(imp.id, COMPLETED)


def claim(state: State, op: TableOp[Any], rows: str, kind: str) -> State:
    """The rejected rows that the op names belong to it from now on. `kind` is that of its import."""
    origin = origin_of(state, op)
    wanted = bitmap_of(rows)
    closed = ClosedRows.read(state.claims.get(origin.id))
    taken = wanted & closed.rows
    if taken:
        raise Clash(
            f"{len(taken):,} of these rejected rows of {origin.id} were replayed, amended or discarded before "
            f"(row {taken[0]:,} is the first).",
            remedy=f"Choose the others; `millrace errors {origin.id} --state open` shows them.",
            code="claimed",
        )
    claims = {**state.claims, origin.id: closed.closing(WAY_OF[kind], wanted).to_bytes()}
    return replace(state, claims=claims)


def release(state: State, imp: Import) -> State:
    """Rows of a replay or an amendment that did not complete are open again, if no row can be doubled: the table has a key,
    or nothing was accepted."""
    if imp.kind not in (REPLAY, AMEND) or imp.state == COMPLETED or imp.of is None:
        return state
    keyed = state.table is not None and bool(state.table.definition.table.primary_key)
    rows = imp.options.get("rows")
    if rows is None or imp.of not in state.claims or not (keyed or imp.counts.accepted == 0):
        return state
    left = ClosedRows.read(state.claims[imp.of]).opening(bitmap_of(rows))
    return replace(state, claims={**state.claims, imp.of: left.to_bytes()})


def origin_of(state: State, op: TableOp[Any]) -> Import:
    """The import whose rejected rows the op is about."""
    origin = state.imports.get(op.origin or "")
    if origin is None or origin.tenant != op.tenant or origin.table != op.table:
        raise Missing(f"There is no import {op.origin} into {op.tenant}/{op.table}.", code="no_import")
    if not origin.is_over:
        raise Clash(f"Import {origin.id} is still {origin.state}.", remedy="Wait for its end.", code="not_over")
    return origin
