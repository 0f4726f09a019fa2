"""Evaluates one op: step(state, op, append time, partition) -> outcome. Pure: the same log gives the same state.

A rule raises Refused for what is not allowed. A refused op changes nothing but the span that it wanted to join."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import RULES, Rule, spans
from millrace.control.rules.repeated import refuse_unlike
from millrace.control.state import OpOutcome, State
from millrace.model.errors import Clash, Invalid, Refused
from millrace.model.ops import Applied, Op
from millrace.model.ops.base import TurnOp, Unreadable
from millrace.model.ops.results import Refusal, Waiting
from millrace.model.ops.rows import Append, OpenSender

MOST_WAITING = 1000


def step(state: State, op: Op[Any], at_us: int, partition: int) -> OpOutcome:
    """1. Applies the op or puts it into the queue. 2. Applies the waiting ops that have room now, in order."""
    outcome = _start(state, op, at_us, partition)
    return _go_on(outcome, at_us, partition)


def _start(state: State, op: Op[Any], at_us: int, partition: int) -> OpOutcome:
    if isinstance(op, Unreadable):
        return _refused(state, op, Invalid(op.reason, code=op.code), at_us)
    if isinstance(op, TurnOp) and not _may_start(state, op):
        return _wait(state, op, at_us)
    return _apply(RULES[type(op)], state, op, at_us, partition)


def _may_start(state: State, op: TurnOp[Any]) -> bool:
    """There is room on the table, or the op changes nothing: it repeats a request, or asks about a sender that has no rows
    in the queue."""
    table = state.table
    if table is None or (table.has_room and not state.queue):
        return True
    if isinstance(op, OpenSender):
        return not any(isinstance(waiting, Append) and op.sender in waiting.senders for waiting in state.queue)
    return op.request_key in state.by_key


def _wait(state: State, op: TurnOp[Any], at_us: int) -> OpOutcome:
    under_way = f"{op.tenant}/{op.table} is exclusive and something else is under way."
    asked_before = next((one for one in state.queue if op.request_key and one.request_key == op.request_key), None)
    try:
        if asked_before is not None:
            refuse_unlike(asked_before, op)
            return OpOutcome(state, (), (Applied(op.id, Waiting(asked_before.id)),))
        if not op.wait:
            raise Clash(under_way, remedy="Ask again later, or ask to wait your turn.", code="under_way")
        if len(state.queue) >= MOST_WAITING:
            raise Clash(under_way, remedy=f"{MOST_WAITING} ops wait already; ask again later.", code="under_way")
        joined = spans.join(state, op)
    except Refused as refusal:
        return _refused(state, op, refusal, at_us)
    queue = (*state.queue, replace(op, joined=True))
    return OpOutcome(replace(joined, queue=queue), (), (Applied(op.id, Waiting()),))


def _go_on(outcome: OpOutcome, at_us: int, partition: int) -> OpOutcome:
    while outcome.state.queue and (outcome.state.table is None or outcome.state.table.has_room):
        op, *rest = outcome.state.queue
        before = replace(outcome.state, queue=tuple(rest))
        turn = _apply(RULES[type(op)], before, op, at_us, partition)
        outcome = OpOutcome(turn.state, outcome.effects + turn.effects, outcome.answers + turn.answers)
    return outcome


def _apply(rule: Rule[Any], state: State, op: Op[Any], at_us: int, partition: int) -> OpOutcome:
    try:
        after, effects, result = rule(state, op, at_us, partition)
    except Refused as refusal:
        return _refused(state, op, refusal, at_us)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # An op that cannot be evaluated must not block the ops behind it.
        message = f"The op {op.kind} of {op.tenant}/{op.subject} cannot be evaluated: {error!r:.200}."
        return _refused(state, op, Invalid(message, code="malformed_op"), at_us)
    return OpOutcome(after, tuple((op, effect) for effect in effects), (Applied(op.id, result),))


def _refused(state: State, op: Op[Any], error: Refused, at_us: int) -> OpOutcome:
    refusal = Refusal.of(error)
    after, effects = spans.member_refused(state, op, refusal, at_us)
    return OpOutcome(after, tuple((op, effect) for effect in effects), (Applied(op.id, refusal=refusal),))
