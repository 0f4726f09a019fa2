"""Sees everything that happens in the world and lets each check look at it. The first thing that must not be ends the run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.control.state import Announce, Effect, OpOutcome
from millrace.model.chunk import ChunkVerdict
from millrace.model.imports import CANCELLED, COMPLETED, FAILED, Counts, Import
from millrace.model.ops import Applied, Op
from millrace.model.ops.imports import EndImport, PublishImport
from millrace.model.ops.results import Waiting
from simulate.content import Chunk
from simulate.logs import Record

if TYPE_CHECKING:
    from simulate.world import World

BEGINS = ("import.admitted", "table.created", "table.changed")
ENDS = {f"{kind}{final}" for kind in ("import.", "table.change_") for final in (COMPLETED, FAILED, CANCELLED)}


class Violation(AssertionError):
    """`rule` names what was broken."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(rule, message)
        self.rule = rule

    def __str__(self) -> str:
        return ": ".join(self.args)


class Applying(NamedTuple):
    """A record of the log, what it led to, and the ops that were answered with it."""

    record: Record
    outcome: OpOutcome
    asked: dict[str, Op[Any]]


class Turn:
    """One op, its answer, and what followed from it. `admitted` is the import that it made and that is now under way."""

    __slots__ = (
        "admitted",
        "answer",
        "at_us",
        "effects",
        "ended",
        "is_refused",
        "is_waiting",
        "op",
        "told",
        "waits_as",
    )

    def __init__(self, op: Op[Any], answer: Applied, effects: list[Effect], at_us: int, outcome: OpOutcome) -> None:
        self.op = op
        self.answer = answer
        self.effects = effects
        self.at_us = at_us
        self.is_refused = answer.refusal is not None
        self.is_waiting = answer.is_waiting
        self.waits_as = answer.result.first if isinstance(answer.result, Waiting) else None
        self.told = [effect for effect in effects if isinstance(effect, Announce)]
        self.admitted: Import | None = None
        self.ended: Import | None = None
        for told in self.told:
            # A change of a table names its import.
            import_id = told.data.get("import", told.subject) if told.type.startswith("table.") else told.subject
            if told.type in BEGINS:
                self.admitted = outcome.state.imports[import_id]
            elif told.type in ENDS:
                self.ended = outcome.state.imports[import_id]


@dataclass
class Seen:
    """What can be known of an import without asking the store."""

    imp: Import
    announced: int | None
    chunks: dict[int, Chunk] = field(default_factory=dict)
    judged: dict[int, ChunkVerdict] = field(default_factory=dict)
    is_shown: bool = False
    final: str | None = None
    sinks: tuple[str, ...] = ()
    counts: Counts | None = None


class Check:
    """One invariant, or a few that need to know the same."""

    def __init__(self, world: "World", book: dict[str, Seen]) -> None:
        self.world = world
        self.book = book

    def applied(self, turn: Turn) -> None: ...

    def appended(self, chunk: Chunk) -> None: ...

    def sank(self, sink: str, table: tuple[str, str]) -> None: ...

    def over(self) -> None:
        """Nothing is under way any more."""


class Watch:
    def __init__(self, world: "World", checks: Sequence[type[Check]]) -> None:
        self.book: dict[str, Seen] = {}
        self._known: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._checks = [check(world, self.book) for check in checks]

    def applied(self, applied: Iterable[Applying]) -> None:
        """The same log gives the same answers and the same events, also when an older store meets it again (I1)."""
        for record, outcome, asked in applied:
            place, came = (record.partition, record.offset), (outcome.answers, outcome.effects)
            known = self._known.setdefault(place, came)
            if known is came:
                self._turns(record, outcome, asked)
            elif known != came:
                raise Violation("same log, same outcome", f"{record.value} led to {came}, before to {known}")

    def _turns(self, record: Record, outcome: OpOutcome, asked: dict[str, Op[Any]]) -> None:
        for answer in outcome.answers:
            effects = [effect for cause, effect in outcome.effects if cause.id == answer.op_id]
            turn = Turn(asked[answer.op_id], answer, effects, record.at_us, outcome)
            self._note(turn)
            for check in self._checks:
                check.applied(turn)

    def _note(self, turn: Turn) -> None:
        imp, ended, op = turn.admitted, turn.ended, turn.op
        if imp is not None:
            self.book[imp.id] = Seen(imp, imp.announced["chunks"] if imp.announced else None)
        if ended is not None and ended.id in self.book:
            seen = self.book[ended.id]
            seen.final, seen.counts, seen.sinks = ended.state, ended.counts, ended.sinks
        elif not turn.is_refused and isinstance(op, EndImport) and self.book[op.subject].announced is None:
            self.book[op.subject].announced = op.chunks
        elif isinstance(op, PublishImport) and turn.effects:
            self.book[op.subject].is_shown = True

    def appended(self, chunk: Chunk) -> None:
        for check in self._checks:
            check.appended(chunk)
        self.book[chunk.import_id].chunks.setdefault(chunk.number, chunk)

    def judged(self, verdicts: Iterable[ChunkVerdict]) -> None:
        for verdict in verdicts:
            judged = self.book[verdict.import_id].judged
            known = judged.get(verdict.number)
            if known is None or known.ignored:
                judged[verdict.number] = verdict

    def sank(self, sink: str, table: tuple[str, str]) -> None:
        for check in self._checks:
            check.sank(sink, table)

    def over(self) -> None:
        for check in self._checks:
            check.over()
