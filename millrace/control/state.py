"""What one op can read and change, and its effects. Values only: the controller reads and writes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.model.chunk import ChunkHeader
from millrace.model.imports import NOTHING, Counts, Import
from millrace.model.ops import Applied, Op
from millrace.model.ops.base import TurnOp
from millrace.model.ops.results import Result
from millrace.model.table import Definition

Queue = tuple[TurnOp[Any], ...]
OPEN, ENDING, ENDED, ABORTED = "open", "ending", "ended", "aborted"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A deleted tenant can be restored until `erase_us`."""

    name: str
    partition: int
    agreement: dict[str, Any]
    revision: int
    deleted_us: int | None = None
    erase_us: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """`last_version` only grows, also when the table is dropped and declared again; `open_imports` have not settled."""

    tenant: str
    name: str
    definition: Definition
    last_version: int
    defined_us: int
    floor: int = 0
    open_imports: int = 0
    dropped_us: int | None = None
    is_purged: bool = False

    @property
    def is_dropped(self) -> bool:
        return self.dropped_us is not None

    @property
    def has_room(self) -> bool:
        """Whether the next op may start now. Otherwise it waits until the imports under way have settled."""
        return self.open_imports == 0 or self.definition.table.concurrency == "concurrent"


@dataclass(frozen=True, slots=True)
class Span:
    """`open_members` counts imports and child spans that have not ended."""

    tenant: str
    name: str
    state: str
    begun_us: int
    lease_seconds: int
    open_members: int = 0
    imports: int = 0
    counts: Counts = NOTHING
    error: dict[str, str] | None = None
    ended_us: int | None = None

    @property
    def parent(self) -> str | None:
        return self.name.rpartition("/")[0] or None

    @property
    def is_over(self) -> bool:
        return self.state in (ENDED, ABORTED)


@dataclass(frozen=True, slots=True)
class State:
    """The entities one op may touch.

    `queue`         the ops that wait for their turn on the table, oldest first
    `by_key`        the imports that earlier requests with the same idempotency keys began
    `history`       the definitions of the table's generation
    `senders`       by name of a sender the number of its last row
    `row_digests`   by name of a sender the digest of the rows that its one request brought
    `claims`        by import its rejected rows that someone has claimed
    `twin`          another tenant or table whose name differs from the op's in case only
    `open_imports`  how many the tenant has, where that is bounded"""

    tenant: Tenant | None = None
    table: Table | None = None
    imports: Mapping[str, Import] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    queue: Queue = ()
    by_key: Mapping[str, Import] = field(default_factory=dict)
    history: tuple[Definition, ...] = ()
    senders: Mapping[str, int] = field(default_factory=dict)
    row_digests: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, bytes] = field(default_factory=dict)
    twin: str | None = None
    open_imports: int | None = None

    def with_import(self, imp: Import) -> "State":
        return replace(self, imports={**self.imports, imp.id: imp})

    def with_span(self, span: Span) -> "State":
        return replace(self, spans={**self.spans, span.name: span})


@dataclass(frozen=True, slots=True)
class Announce:
    """An event. Its id is derived from the op, so a replay announces it under the same id."""

    type: str
    subject: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreDefinition:
    """A definition that the workers must be able to read before an import names it."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class Close:
    """Stop judging the import's chunks and mark where it ends in every partition."""

    import_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """A chunk that the controller puts into raw-input: a change for the sinks, or the rows of an append."""

    header: ChunkHeader
    payload: bytes = b""

    @staticmethod
    def change(imp: Import, number: int, kind: str) -> "Send":
        """A chunk without rows."""
        version = imp.first_version + number
        return Send(ChunkHeader(imp.id, number, version, imp.definition, "jsonl", 1, 1, 0, 0, 0, kind=kind))


Effect = Announce | StoreDefinition | Close | Send
Step = tuple[State, tuple[Effect, ...], Result]


@dataclass(frozen=True, slots=True)
class OpOutcome:
    """What an op led to, with an answer for the op and for each waiting op whose turn came with it."""

    state: State
    effects: tuple[tuple[Op[Any], Effect], ...]
    answers: tuple[Applied, ...]
