"""What must hold, from the design's invariants."""

from simulate.checks.claims import EachRejectOnce
from simulate.checks.endings import EndIsTrue
from simulate.checks.order import PayloadAfterAck, VersionsInOrder
from simulate.checks.quiet import EventsInOrder, EverythingEnds, ReplayIsTheSame
from simulate.checks.senders import SendersInStep
from simulate.checks.spans import SpanRules
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
    SendersInStep,
    EachRejectOnce,
    EventsInOrder,
    ReplayIsTheSame,
)
