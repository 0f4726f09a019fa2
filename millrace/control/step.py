"""The controller's rules: step(state, op, append time) -> what it led to. Pure: the same log gives the same state.

What is not allowed raises Refused inside a rule and changes nothing but the span the op wanted to join."""

from collections.abc import Callable
from dataclasses import replace

from millrace.control.rules import erasing, errors, holding, imports, sinks, spans, tables, tenants
from millrace.control.state import Outcome, State, Step
from millrace.model import ops
from millrace.model.errors import Clash, Exceeded, Invalid, Refused
from millrace.model.ops import Applied, Op

Rule = Callable[[State, Op, int, int], Step]
MOST_WAITING = 1000

# These start something on a table; on an exclusive one they wait until what is under way has settled.
_IN_TURN: dict[str, Rule] = {
    ops.DEFINE_TABLE: tables.define,
    ops.TRUNCATE_TABLE: tables.truncate,
    ops.DROP_TABLE: tables.drop,
    ops.RESTORE_TABLE: tables.restore,
    ops.BEGIN_IMPORT: imports.begin,
    ops.APPEND: imports.append,
    ops.OPEN_STREAM: imports.open_stream,
    ops.REPLAY_ERRORS: errors.replay,
}
_AT_ONCE: dict[str, Rule] = {
    ops.DEFINE_TENANT: tenants.define,
    ops.DELETE_TENANT: tenants.delete,
    ops.RESTORE_TENANT: tenants.restore,
    ops.ERASE_TENANT: erasing.erase,
    # A dropped table takes no imports, so nothing can be under way that a purge would have to wait for.
    ops.PURGE_TABLE: tables.purge,
    ops.DISCARD_ERRORS: errors.discard,
    ops.WAIVE_SINK: sinks.waive,
    ops.NOTE_SINK: sinks.note,
    ops.END_IMPORT: imports.end,
    ops.CANCEL_IMPORT: imports.cancel,
    ops.EXPIRE_IMPORT: imports.expire,
    ops.FAIL_IMPORT: imports.fail,
    ops.STOP_IMPORT: imports.stop,
    ops.PUBLISH_IMPORT: imports.publish,
    ops.SETTLE_IMPORT: imports.settle,
    ops.HOLD_IMPORT: holding.hold,
    ops.RELEASE_IMPORT: holding.release,
    ops.BEGIN_SPAN: spans.begin,
    ops.END_SPAN: spans.end,
    ops.ABORT_SPAN: spans.abort,
    ops.EXPIRE_SPAN: spans.expire,
}


def step(state: State, op: Op, at_us: int, partition: int) -> Outcome:
    """1. The op itself, or its place in the queue. 2. Whatever waited and has room now, in order."""
    outcome = _start(state, op, at_us, partition)
    return _go_on(outcome, at_us, partition)


def _start(state: State, op: Op, at_us: int, partition: int) -> Outcome:
    rule = _AT_ONCE.get(op.kind)
    if rule is not None:
        return _apply(rule, state, op, at_us, partition)
    rule = _IN_TURN.get(op.kind)
    if rule is None:
        return _refused(state, op, Invalid(f"Unknown op {op.kind!r}."), at_us)
    table = state.table
    if table is None or (table.has_room and not state.queue) or _needs_no_turn(state, op):
        return _apply(rule, state, op, at_us, partition)
    return _wait(state, op, at_us)


def _needs_no_turn(state: State, op: Op) -> bool:
    """A request that was answered before; a stream that nothing in line will move on."""
    if op.kind == ops.OPEN_STREAM:
        return not any(op.body["stream"] in waiting.body.get("streams", ()) for waiting in state.queue)
    return op.body.get("idempotency_key") in state.by_key


def _wait(state: State, op: Op, at_us: int) -> Outcome:
    under_way = f"{op.tenant}/{op.subject} is exclusive and something else is under way."
    asked_before = _waiting_with_same_key(state, op)
    if asked_before is not None:
        return Outcome(state, (), (Applied(op.id, {"waiting": True, "as": asked_before.id}),))
    try:
        if op.body.get("wait") is False:
            raise Clash(under_way, remedy="Ask again later, or ask to wait your turn.", code="under_way")
        if len(state.queue) >= MOST_WAITING:
            raise Clash(under_way, remedy=f"{MOST_WAITING} ops wait already; ask again later.", code="under_way")
        joined = spans.join(state, op)
    except Refused as refusal:
        return _refused(state, op, refusal, at_us)
    waiting = replace(op, body={**op.body, "joined": True})
    return Outcome(replace(joined, queue=(*state.queue, waiting)), (), (Applied(op.id, {"waiting": True}),))


def _waiting_with_same_key(state: State, op: Op) -> Op | None:
    key = op.body.get("idempotency_key")
    same = (waiting for waiting in state.queue if key and waiting.body.get("idempotency_key") == key)
    return next(same, None)


def _go_on(outcome: Outcome, at_us: int, partition: int) -> Outcome:
    while outcome.state.queue and (outcome.state.table is None or outcome.state.table.has_room):
        op, *rest = outcome.state.queue
        before = replace(outcome.state, queue=tuple(rest))
        turn = _apply(_IN_TURN[op.kind], before, op, at_us, partition)
        outcome = Outcome(turn.state, outcome.effects + turn.effects, outcome.answers + turn.answers)
    return outcome


def _apply(rule: Rule, state: State, op: Op, at_us: int, partition: int) -> Outcome:
    try:
        after, effects, result = rule(state, op, at_us, partition)
    except Refused as refusal:
        return _refused(state, op, refusal, at_us)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # One op that cannot be understood must not stand in the way of all that come behind it.
        message = f"The op {op.kind} of {op.tenant}/{op.subject} cannot be evaluated: {error!r:.200}."
        return _refused(state, op, Invalid(message, code="malformed_op"), at_us)
    return Outcome(after, tuple((op, effect) for effect in effects), (Applied(op.id, result),))


def _refused(state: State, op: Op, refusal: Refused, at_us: int) -> Outcome:
    facts = refusal.facts if isinstance(refusal, Exceeded) else {}
    told = {"code": refusal.code, "message": refusal.message, "remedy": refusal.remedy, **facts}
    after, effects = spans.member_refused(state, op, told, at_us)
    return Outcome(after, tuple((op, effect) for effect in effects), (Applied(op.id, {}, told),))
