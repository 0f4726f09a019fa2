"""Spans: begun before their members, ended once when all of them have, aborted once and only for a reason, naming it."""

from dataclasses import dataclass, field

from millrace.control.state import Announce
from millrace.model.imports import COMPLETED, Import
from millrace.model.names import span_lineage
from millrace.model.ops.base import SpanOp
from millrace.model.ops.spans import AbortSpan, EndSpan, ExpireSpan
from simulate.watch import ENDS, Check, Turn, Violation

Name = tuple[str, str]


@dataclass
class Followed:
    """`open` are the ops whose imports have not ended and the child spans; `reasons` why it can no longer complete."""

    state: str = "open"
    is_ending: bool = False
    open: set[str] = field(default_factory=set)
    imports: int = 0
    accepted: int = 0
    reasons: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return self.state != "open"


class SpanRules(Check):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._spans: dict[Name, Followed] = {}

    def applied(self, turn: Turn) -> None:
        self._joins(turn)
        self._asks(turn)
        for told in turn.told:
            self._hears(turn, told)
        self._is_settled()

    def _joins(self, turn: Turn) -> None:
        op, named = turn.op, turn.op.joins
        span = self._spans.get((op.tenant, named)) if named else None
        if span is None:
            if named and turn.admitted is not None:
                raise Violation("spans", f"{op.id} joined {named}, which was never begun")
            return
        was_member = op.id in span.open
        if turn.is_refused:
            self._is_refused(turn, span, was_member)
        elif (turn.is_waiting and turn.waits_as is None) or (turn.admitted is not None and not was_member):
            if span.is_over or span.is_ending:
                raise Violation("spans", f"{op.id} joined {named}, which is over")
            span.open.add(op.id)
            span.imports += 1

    def _is_refused(self, turn: Turn, span: Followed, was_member: bool) -> None:
        span.open.discard(turn.op.id)
        span.imports -= was_member
        # Rows out of step are there or come again; whoever came too late was never a member.
        is_member = was_member or not (span.is_over or span.is_ending)
        if is_member and turn.answer.refusal is not None and turn.answer.refusal.code != "out_of_step":
            span.reasons.add(f"{turn.op.kind} of {turn.op.tenant}/{turn.op.subject}")

    def _asks(self, turn: Turn) -> None:
        op = turn.op
        span = self._spans.get((op.tenant, op.subject))
        if not isinstance(op, SpanOp) or span is None or turn.is_refused or span.is_over:
            return
        in_use = bool(span.open) or span.is_ending
        if isinstance(op, EndSpan):
            span.is_ending = True
        elif isinstance(op, AbortSpan) or (isinstance(op, ExpireSpan) and not in_use):
            span.reasons.add(op.subject)

    def _hears(self, turn: Turn, told: Announce) -> None:
        tenant = turn.op.tenant
        if told.type == "span.begun":
            self._begins(tenant, told.subject)
        elif told.type == "span.ended":
            self._ends(tenant, told)
        elif told.type == "span.aborted":
            self._aborts(tenant, told)
        elif told.type in ENDS and turn.ended is not None and turn.ended.span is not None:
            self._member_ends(turn.ended)

    def _begins(self, tenant: str, name: str) -> None:
        if (tenant, name) in self._spans:
            raise Violation("spans", f"{name} was begun twice")
        self._spans[tenant, name] = Followed()
        for above in span_lineage(name)[:-1][-1:]:
            parent = self._spans[tenant, above]
            if parent.is_over or parent.is_ending:
                raise Violation("spans", f"{name} was begun in {above}, which is over")
            parent.open.add(name)

    def _member_ends(self, imp: Import) -> None:
        assert imp.span is not None
        span = self._spans[imp.tenant, imp.span]
        span.open.discard(imp.id)
        span.accepted += imp.counts.accepted
        if imp.state != COMPLETED:
            span.reasons.add(imp.id)

    def _ends(self, tenant: str, told: Announce) -> None:
        name = told.subject
        span = self._spans[tenant, name]
        if span.is_over or not span.is_ending or span.open or span.reasons:
            raise Violation("spans", f"{name} ended: {span}")
        if (told.data["imports"], told.data["rows"]["accepted"]) != (span.imports, span.accepted):
            raise Violation("spans", f"{name} ended with {told.data}, but it is {span}")
        span.state = "ended"
        for above in span_lineage(name)[:-1][-1:]:
            parent = self._spans[tenant, above]
            parent.open.discard(name)
            parent.imports += span.imports
            parent.accepted += span.accepted

    def _aborts(self, tenant: str, told: Announce) -> None:
        name = told.subject
        span = self._spans[tenant, name]
        reasons = {
            reason
            for (of, other), below in self._spans.items()
            if of == tenant and (other == name or other.startswith(name + "/"))
            for reason in below.reasons
        }
        if span.is_over or told.data["error"]["member"] not in reasons:
            raise Violation("spans", f"{name} was aborted for {told.data['error']}; reasons: {reasons}")
        span.state = "aborted"
        for above in span_lineage(name)[:-1][-1:]:
            parent = self._spans[tenant, above]
            parent.open.discard(name)
            parent.reasons.add(told.data["error"]["member"])

    def _is_settled(self) -> None:
        """What can be said of a span is said at once."""
        for name, span in self._spans.items():
            if not span.is_over and span.reasons:
                raise Violation("spans", f"{name} can no longer complete ({span.reasons}) and was not aborted")
            if not span.is_over and span.is_ending and not span.open:
                raise Violation("spans", f"{name} has nothing to wait for and has not ended")

    def over(self) -> None:
        left = {name: span for name, span in self._spans.items() if not span.is_over}
        if left:
            raise Violation("liveness", f"these spans are not over: {left}")
