"""An import as the controller and the ledger know it, and the table of its legal state changes."""

from dataclasses import astuple, dataclass, field
from operator import add
from typing import Any

from millrace.model.budget import NO_BUDGET, Budget

REQUESTED, ADMITTED, RECEIVING, PROCESSING = "requested", "admitted", "receiving", "processing"
PUBLISHING, STOPPING, STALLED = "publishing", "stopping", "stalled"
# All its rows are durable, a quality rule is broken, and someone must decide whether it ends.
HELD = "held"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
TERMINAL = (COMPLETED, FAILED, CANCELLED)
STATES = (REQUESTED, ADMITTED, RECEIVING, PROCESSING, PUBLISHING, STOPPING, STALLED, HELD, *TERMINAL)

# The kinds of imports. `truncate` and `alter` carry no rows, only a change that each sink must make.
LOAD, APPEND, DELETE, TRUNCATE, ALTER = "load", "append", "delete", "truncate", "alter"
REPLAY, AMEND, DISCARD = "replay", "amend", "discard"
KINDS = (LOAD, APPEND, DELETE, TRUNCATE, ALTER, REPLAY, AMEND, DISCARD)


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows read = accepted + rejected + ignored, always."""

    chunks: int = 0
    read: int = 0
    accepted: int = 0
    rejected: int = 0
    ignored: int = 0
    failed_chunks: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """As events show them."""
        return {"read": self.read, "accepted": self.accepted, "rejected": self.rejected, "ignored": self.ignored}

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(add, astuple(self), astuple(other)))


# A rejected row older than this can only be amended. Sinks remember deleted keys for longer: a row that is replayed under its
# own version cannot bring back a deleted key.
REPLAYABLE_US = 7 * 86_400_000_000

NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Import:
    id: str
    tenant: str
    table: str
    definition: str
    state: str
    first_version: int
    versions: int
    sinks: tuple[str, ...]
    begun_us: int
    options: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    announced: dict[str, int] | None = None
    markers: dict[str, int] | None = None
    error: dict[str, str] | None = None
    final: str | None = None
    ended_us: int | None = None
    counts: Counts = NOTHING
    durable: dict[str, int] = field(default_factory=dict)
    kind: str = LOAD
    span: str | None = None
    of: str | None = None
    publish: str = "rolling"

    @property
    def is_over(self) -> bool:
        return is_final(self.state)

    @property
    def deletes(self) -> bool:
        """Whether each of its rows is a key to delete. A replay takes this from the import that it replays."""
        return bool(self.options.get("deletes", self.kind == DELETE))

    @property
    def written(self) -> dict[str, Any]:
        """How its rows were written; rows of senders are always lines of JSON."""
        return {"encoding": "jsonl"} if self.kind == APPEND else self.options.get("written") or {}

    @property
    def accepts_chunks(self) -> bool:
        return self.state == ADMITTED


def is_final(state: str) -> bool:
    return state in TERMINAL


def outcome(
    imp: Import, counts: Counts, failure: str | None, budget: Budget = NO_BUDGET
) -> tuple[str, dict[str, str] | None]:
    """The terminal state of an import that has settled, and why if it is not `completed`."""
    if imp.final is not None:
        return imp.final, imp.error
    if not budget.holds and budget.is_blown(counts.read, counts.rejected, at_the_end=True):
        return FAILED, too_many_rejected(counts)
    if counts.failed_chunks:
        return FAILED, {"code": "chunk_failed", "message": failure or "A chunk could not be judged.", "remedy": ""}
    if counts.read and not counts.accepted:
        message = f"None of the {counts.read:,} rows was accepted."
        return FAILED, {"code": "nothing_accepted", "message": message, "remedy": f"See `millrace errors {imp.id}`."}
    return COMPLETED, None


def too_many_rejected(counts: Counts) -> dict[str, str]:
    message = f"{counts.rejected:,} of {counts.read:,} rows were rejected, more than the table allows."
    return {
        "code": "too_many_rejected",
        "message": message,
        "remedy": "See `millrace errors`; mend the file or the rules.",
    }
