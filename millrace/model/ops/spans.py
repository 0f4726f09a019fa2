"""Ops about spans."""

from dataclasses import dataclass

from millrace.model.ops.base import SpanOp, op_kind
from millrace.model.ops.results import Result


@dataclass(frozen=True, slots=True)
class SpanStatus(Result):
    span: str
    state: str


@dataclass(frozen=True, slots=True)
class SpanBegun(SpanStatus):
    """`repeated`: it was open already."""

    repeated: bool


@op_kind("begin_span")
class BeginSpan(SpanOp[SpanBegun]):
    lease_seconds: int | None = None


@op_kind("end_span")
class EndSpan(SpanOp[SpanStatus]):
    pass


@op_kind("abort_span")
class AbortSpan(SpanOp[SpanStatus]):
    reason: str = ""


@op_kind("expire_span")
class ExpireSpan(SpanOp[SpanStatus]):
    pass
