"""Spans: imports and child spans join them. A span ends when all members have ended, and aborts when one fails."""

from dataclasses import replace
from typing import Any

from millrace.control.rules import rule
from millrace.control.state import ABORTED, ENDED, ENDING, OPEN, Announce, Effect, Span, State, Step
from millrace.model.errors import Clash, Missing
from millrace.model.frames import OUT_OF_STEP
from millrace.model.imports import COMPLETED, Import
from millrace.model.moments import iso
from millrace.model.names import span_lineage
from millrace.model.ops.base import Op, SpanOp, TableOp
from millrace.model.ops.results import Refusal
from millrace.model.ops.spans import AbortSpan, BeginSpan, EndSpan, ExpireSpan, SpanBegun, SpanStatus

DEFAULT_LEASE_SECONDS = 3600
Changed = tuple[State, tuple[Effect, ...]]


@rule(BeginSpan)
def begin(state: State, op: BeginSpan, at_us: int, partition: int) -> Step:
    """Opens the span, and each level above it that is not there yet."""
    if state.tenant is None:
        raise Missing(f"There is no tenant {op.tenant!r}.", code="no_tenant")
    known = state.spans.get(op.name)
    if known is not None:
        _refuse_unless_open(known)
        return state, (), SpanBegun(known.name, known.state, repeated=True)
    lease = op.lease_seconds or DEFAULT_LEASE_SECONDS
    effects: list[Effect] = []
    for name in span_lineage(op.name):
        before = state.spans.get(name)
        if before is not None:
            _refuse_unless_open(before)
            continue
        span = Span(op.tenant, name, OPEN, at_us, lease)
        if span.parent is not None:
            above = state.spans[span.parent]
            state = state.with_span(replace(above, open_members=above.open_members + 1))
        state = state.with_span(span)
        effects.append(Announce("span.begun", name, {"span": name, "begun_us": at_us}))
    return state, tuple(effects), SpanBegun(op.name, OPEN, repeated=False)


@rule(EndSpan)
def end(state: State, op: EndSpan, at_us: int, partition: int) -> Step:
    span = _known(state, op)
    if span.state != OPEN:
        return state, (), SpanStatus(span.name, span.state)
    after, effects = _end_if_done(state.with_span(replace(span, state=ENDING)), span.name, at_us)
    return after, effects, SpanStatus(span.name, after.spans[span.name].state)


@rule(AbortSpan)
def abort(state: State, op: AbortSpan, at_us: int, partition: int) -> Step:
    return _give_up(state, op, at_us, "aborted", op.reason or "The span was aborted.")


@rule(ExpireSpan)
def expire(state: State, op: ExpireSpan, at_us: int, partition: int) -> Step:
    """Only a span that is still open and unused: something may have joined it since the timer looked."""
    span = _known(state, op)
    if span.state != OPEN or span.open_members > 0:
        return state, (), SpanStatus(span.name, span.state)
    return _give_up(state, op, at_us, "expired", "Nothing happened in the span for as long as its lease.")


def _give_up(state: State, op: SpanOp[Any], at_us: int, code: str, message: str) -> Step:
    span = _known(state, op)
    if span.is_over:
        return state, (), SpanStatus(span.name, span.state)
    error = {"code": code, "message": message, "member": span.name}
    after, effects = _abort(state, span.name, error, at_us)
    return after, effects, SpanStatus(span.name, ABORTED)


def join(state: State, op: TableOp[Any]) -> State:
    """The op becomes a member of the span that it names. An op that waits joined it when it was put into the queue."""
    name = op.joins
    if name is None or op.has_joined:
        return state
    span = state.spans.get(name)
    if span is None:
        raise Missing(
            f"There is no span {name!r} of {op.tenant}.", remedy="Begin it with `millrace span begin`.", code="no_span"
        )
    _refuse_unless_open(span)
    for level in span_lineage(name)[:-1]:
        if state.spans[level].is_over:
            _refuse_unless_open(state.spans[level])
    return state.with_span(replace(span, open_members=span.open_members + 1, imports=span.imports + 1))


def member_refused(state: State, op: Op[Any], refusal: Refusal, at_us: int) -> Changed:
    span = state.spans.get(op.joins or "")
    if span is None:
        return state, ()
    if op.has_joined:
        span = replace(span, open_members=span.open_members - 1, imports=span.imports - 1)
        state = state.with_span(span)
    elif span.state != OPEN:
        # It came too late and was never a member.
        return state, ()
    if span.is_over:
        return state, ()
    if refusal.code == OUT_OF_STEP:
        # No row is lost: these rows are in the log already, or the sender sends them again.
        return _end_if_done(state, span.name, at_us)
    member = f"{op.kind} of {op.tenant}/{op.subject}"
    return _abort(state, span.name, {**refusal.reason, "member": member}, at_us)


def member_settled(state: State, imp: Import, at_us: int) -> Changed:
    span = state.spans.get(imp.span or "")
    if span is None:
        return state, ()
    left = replace(span, open_members=span.open_members - 1, counts=span.counts + imp.counts)
    state = state.with_span(left)
    if left.is_over:
        return state, ()
    if imp.state != COMPLETED:
        error = {"code": imp.state, "message": (imp.error or {}).get("message", imp.state), "member": imp.id}
        return _abort(state, span.name, error, at_us)
    return _end_if_done(state, span.name, at_us)


def _end_if_done(state: State, name: str, at_us: int) -> Changed:
    span = state.spans[name]
    if span.state != ENDING or span.open_members > 0:
        return state, ()
    ended = replace(span, state=ENDED, ended_us=at_us)
    state = state.with_span(ended)
    effects: tuple[Effect, ...] = (Announce("span.ended", name, _described(ended)),)
    if span.parent is None:
        return state, effects
    state, more = _end_if_done(_leave(state, ended), span.parent, at_us)
    return state, effects + more


def _abort(state: State, name: str, error: dict[str, str], at_us: int) -> Changed:
    """The span and every level above it can no longer complete."""
    effects: list[Effect] = []
    for level in reversed(span_lineage(name)):
        span = state.spans[level]
        if span.is_over:
            continue
        aborted = replace(span, state=ABORTED, ended_us=at_us, error=error)
        state = _leave(state, span).with_span(aborted)
        effects.append(Announce("span.aborted", level, _described(aborted)))
    return state, tuple(effects)


def _leave(state: State, span: Span) -> State:
    """The level above has one open member fewer, and what the span counted."""
    if span.parent is None:
        return state
    above = state.spans[span.parent]
    counts, imports = above.counts + span.counts, above.imports + span.imports
    return state.with_span(replace(above, open_members=above.open_members - 1, counts=counts, imports=imports))


def _described(span: Span) -> dict[str, Any]:
    about = {"span": span.name, "imports": span.imports, "rows": span.counts.rows, "error": span.error}
    assert span.ended_us is not None
    interval = {
        "begun_at": iso(span.begun_us),
        "ended_at": iso(span.ended_us),
        "begun_us": span.begun_us,
        "ended_us": span.ended_us,
        "seconds": (span.ended_us - span.begun_us) / 1e6,
    }
    return {**about, "interval": interval}


def _refuse_unless_open(span: Span) -> None:
    if span.state != OPEN:
        raise Clash(
            f"The span {span.name!r} is {span.state}.", remedy="Begin a span of another name.", code="span_over"
        )


def _known(state: State, op: SpanOp[Any]) -> Span:
    span = state.spans.get(op.name)
    if span is None:
        raise Missing(f"There is no span {op.name!r} of {op.tenant}.", code="no_span")
    return span
