"""Deliveries to one target of one table: the key of their queue, how the target is doing, its place in the table's roster,
and what an operator gave up. Values only."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from millrace.model.sinks import DELTA_KIND, ERROR_STORE, SinkTarget
from millrace.model.table import Definition

WANTED, UNDER_WAY, DONE, GIVEN_UP, IMPOSSIBLE = "wanted", "under way", "done", "given up", "impossible"
FROM_LOG, FROM_DELTA = "log", "delta"
BEHIND_EVERY_ID = "~"
# The sinks of the platform itself. Only what they could not write at once waits in a queue; it has the sink's own name.
OWN_SINKS = (DELTA_KIND, ERROR_STORE)


class QueueKey(NamedTuple):
    """`target` is a name: a target that changes its kind is another one."""

    kind: str
    tenant: str
    table: str
    target: str

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def is_own(self) -> bool:
        return self.kind in OWN_SINKS


def own_queue(sink: str, tenant: str, table: str) -> QueueKey:
    return QueueKey(sink, tenant, table, sink)


@dataclass(frozen=True, slots=True)
class QueueState:
    """How the target is doing. `parked_since` and `reason` are set while it takes nothing."""

    parked_since: float | None = None
    reason: str | None = None
    fault: str | None = None
    tries: int = 0
    next_try: float = 0.0
    last_version: int = 0
    refused_rows: int = 0
    most_rows: int | None = None
    """How many rows one delivery may hold, after the target did not take more in time."""
    budget_seconds: float | None = None
    """How long one delivery may take, after the smallest possible one took longer than usual."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """Someone gave up every delivery up to version `below` whose imports have ids up to `until`. Ids are ordered by time. A
    replay that starts later has the versions of the import it replays, but nobody gave it up."""

    below: int = 0
    until: str = BEHIND_EVERY_ID


@dataclass(frozen=True, slots=True)
class Backfill:
    """How a target that was added late gets the rows from before. `source` is where they are read; `needs` are imports that
    the source must show first."""

    state: str = WANTED
    source: str | None = None
    rows: int = 0
    needs: tuple[str, ...] = ()
    reason: str = ""
    began: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A target in its table's roster. `added` and `removed` are ages of definitions; `definition` is the newest one that was
    taken into account, and `newest` is its age."""

    target: SinkTarget
    definition: str
    newest: tuple[int, int]
    added: tuple[int, int]
    removed: tuple[int, int] | None = None
    backfill: Backfill | None = None

    @property
    def is_active(self) -> bool:
        return self.removed is None

    @property
    def is_catching_up(self) -> bool:
        return self.backfill is not None and self.backfill.ended is None

    def takes_late(self, definition: Definition) -> bool:
        """Whether it gets what was imported under a definition from before it was added: the table is the same one."""
        return self.is_active and definition.age < self.added and definition.generation == self.added[0]

    def wanting(self, *needs: str) -> "Member":
        before = self.backfill or Backfill()
        return replace(self, backfill=Backfill(needs=(*before.needs, *needs)))


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue. `member` is None where only old definitions name the target; `announced` is what events have told of it."""

    key: QueueKey
    state: QueueState
    member: Member | None
    waiver: Waiver
    announced: dict[str, Any]
    changed_us: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits. `oldest` is the lowest version among it, copies of older files left out."""

    waiting: int = 0
    size: int = 0
    oldest: int | None = None
