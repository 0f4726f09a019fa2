"""What became of an op: a result, or a refusal of some kind."""

from dataclasses import dataclass, field
from typing import Any

from millrace.model.errors import REFUSAL_KINDS, Exceeded, Refused
from millrace.model.imports import HELD, STOPPING, is_final
from millrace.model.ops.codec import ALWAYS, encode, wire

# Probably one more of the tenant's imports has ended by then.
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Result:
    """The base: of an op that was refused, nothing."""

    @property
    def over(self) -> str | None:
        """The import that is over now."""
        return None

    @property
    def recheck(self) -> tuple[str, ...]:
        """The imports that the ledger must look at again: they may have settled."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        return encode(self)


@dataclass(frozen=True, slots=True)
class Waiting(Result):
    """The op waits for its turn. `first` is the op that waits already for the same request."""

    first: str | None = field(default=None, metadata=wire("as"))
    waiting: bool = field(default=True, init=False, metadata=ALWAYS)


@dataclass(frozen=True, slots=True)
class OfImport(Result):
    import_id: str = field(metadata=wire("import"))


@dataclass(frozen=True, slots=True)
class ToRecheck(OfImport):
    """All of the import has been received: if it is durable as well, it can end."""

    @property
    def recheck(self) -> tuple[str, ...]:
        return (self.import_id,)


@dataclass(frozen=True, slots=True)
class ImportStatus(OfImport):
    """Where an import stands after an op that stops, publishes, holds or ends it."""

    state: str

    @property
    def over(self) -> str | None:
        return self.import_id if is_final(self.state) else None

    @property
    def is_stopping(self) -> bool:
        return self.state == STOPPING

    @property
    def rests(self) -> bool:
        """Nothing more happens to it by itself."""
        return is_final(self.state) or self.state == HELD


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an op was not applied. `kind` says which error the caller gets; `facts` names the quota that was exceeded."""

    kind: str
    code: str
    message: str
    remedy: str
    facts: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(error: Refused) -> "Refusal":
        kind = next(name for name, cls in REFUSAL_KINDS.items() if isinstance(error, cls))
        facts = error.facts if isinstance(error, Exceeded) else {}
        return Refusal(kind, error.code, error.message, error.remedy, facts)

    def to_error(self) -> Refused:
        if self.kind == Exceeded.kind:
            return Exceeded(self.message, remedy=self.remedy, facts=self.facts, retry_seconds=RETRY_SECONDS)
        return REFUSAL_KINDS.get(self.kind, Refused)(self.message, remedy=self.remedy, code=self.code)

    @property
    def reason(self) -> dict[str, str]:
        """What users and events are told."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy, **self.facts}

    def to_dict(self) -> dict[str, str]:
        return {"kind": self.kind, **self.reason}

    @staticmethod
    def from_dict(data: dict[str, str]) -> "Refusal":
        """Answers of earlier releases have no kind: then it is the error class that has the code by default."""
        facts = dict(data)
        code, message, remedy = facts.pop("code"), facts.pop("message"), facts.pop("remedy")
        by_code = next((name for name, cls in REFUSAL_KINDS.items() if cls.code == code), Refused.kind)
        return Refusal(facts.pop("kind", by_code), code, message, remedy, facts)


NOTHING = Result()


@dataclass(frozen=True, slots=True)
class Applied:
    """An op that was evaluated: refused if `refusal` is set."""

    op_id: str
    result: Result = NOTHING
    refusal: Refusal | None = None

    @property
    def is_waiting(self) -> bool:
        return isinstance(self.result, Waiting)
