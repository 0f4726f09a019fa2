"""What all ops share: who asks, what the op is about, whether it waits its turn, which state its rule needs."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

from millrace.model.ops.codec import BESIDE, encode
from millrace.model.ops.results import Result

R_co = TypeVar("R_co", bound=Result, covariant=True)
C = TypeVar("C", bound="type[Op[Any]]")


class Need(Enum):
    """State that a rule needs besides the subject of its op."""

    # Another tenant or table whose name differs in case only.
    TWIN = auto()
    # The definitions of the table's generation.
    HISTORY = auto()
    # How many imports the tenant has open, where that is bounded.
    QUOTA = auto()
    # How many imports of the tenant have not ended.
    UNSETTLED = auto()
    # The table of the import, with the ops that wait for their turn on it.
    TABLE = auto()
    # The imports into the table that have not ended.
    OPEN_IMPORTS = auto()


@dataclass(frozen=True, slots=True)
class Op(Generic[R_co]):
    """An entry of the table log. Its place there is its order; its append time is the clock.

    `R_co` is the type of its result. An op without an id gets one when it is appended."""

    tenant: str = field(metadata=BESIDE)
    id: str = field(default="", kw_only=True, metadata=BESIDE)

    KIND: ClassVar[str] = ""
    # The field that names what the op is about.
    SUBJECT: ClassVar[str] = "tenant"
    NEEDS: ClassVar[frozenset[Need]] = frozenset()
    # False if whoever asked watches the import itself: what became of the op is then not kept.
    IS_ASKED_FOR: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return self.KIND

    @property
    def subject(self) -> str:
        name: str = getattr(self, self.SUBJECT)
        return name

    @property
    def joins(self) -> str | None:
        """The span of which it wants to be a member."""
        span: str | None = getattr(self, "span", None)
        return span

    @property
    def has_joined(self) -> bool:
        return bool(getattr(self, "joined", False))

    def asked_as(self, op_id: str) -> Self:
        return replace(self, id=op_id)

    def to_dict(self) -> dict[str, Any]:
        outer = {"id": self.id, "kind": self.kind, "tenant": self.tenant, "subject": self.subject}
        return {**outer, "body": encode(self)}


@dataclass(frozen=True, slots=True)
class TableOp(Op[R_co]):
    table: str = field(metadata=BESIDE)
    SUBJECT: ClassVar[str] = "table"

    @property
    def request_key(self) -> str | None:
        """The key by which the same request is recognised."""
        key: str | None = getattr(self, "idempotency_key", None)
        return key

    @property
    def origin(self) -> str | None:
        """The import whose rejected rows it is about."""
        origin: str | None = getattr(self, "of", None)
        return origin

    @property
    def sender_names(self) -> Collection[str]:
        """The senders whose last row it must know."""
        return ()


@dataclass(frozen=True, slots=True)
class TurnOp(TableOp[R_co]):
    """Starts something on a table: on an exclusive one it waits until what is under way has settled, unless `wait` is false.

    `joined` is set while it waits: it is a member of its span already."""

    span: str | None = field(default=None, kw_only=True)
    wait: bool = field(default=True, kw_only=True)
    joined: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ImportOp(Op[R_co]):
    import_id: str = field(metadata=BESIDE)
    SUBJECT: ClassVar[str] = "import_id"


@dataclass(frozen=True, slots=True)
class SpanOp(Op[R_co]):
    name: str = field(metadata=BESIDE)
    SUBJECT: ClassVar[str] = "name"


@dataclass(frozen=True, slots=True)
class Unreadable(Op[Result]):
    """An op of an unknown kind, or with fields that do not fit its kind. It is refused, so that whoever asked is told."""

    asked_kind: str
    about: str
    code: str
    reason: str
    span: str | None = None
    SUBJECT: ClassVar[str] = "about"

    @property
    def kind(self) -> str:
        return self.asked_kind


KINDS: dict[str, type[Op[Any]]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def op_kind(kind: str) -> Callable[[C], C]:
    """Makes the class a frozen dataclass and the op of this kind in the log. Its own fields are given by name."""

    def register(cls: C) -> C:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        made.KIND = kind
        assert kind not in KINDS, f"two ops are called {kind}"
        KINDS[kind] = made
        return made  # type: ignore[return-value]

    return register
