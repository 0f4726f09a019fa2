"""What must hold, from the design's invariants."""

from simulate.checks.claims import EachRejectOnce
from simulate.checks.endings import EndIsTrue
from simulate.checks.order import PayloadAfterAck, VersionsInOrder
from simulate.checks.quiet import EventsInOrder, EverythingEnds, ReplayIsTheSame
from simulate.checks.spans import SpanRules
from simulate.checks.streams import StreamsInStep
from simulate.checks.turns import OneAtATime, OneImportPerKey
from simulate.checks.winners import HeldUntilShown, LastOneWins

CHECKS = (
    EverythingEnds,
    VersionsInOrder,
    PayloadAfterAck,
    OneAtATime,
    OneImportPerKey,
    EndIsTrue,
    HeldUntilShown,
    LastOneWins,
    SpanRules,
    StreamsInStep,
    EachRejectOnce,
    EventsInOrder,
    ReplayIsTheSame,
)
