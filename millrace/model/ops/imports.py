"""Ops about imports: begun, received, stopped, published, held, settled."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from millrace.model.budget import NO_BUDGET, Budget
from millrace.model.imports import LOAD, Counts
from millrace.model.ops.base import ImportOp, Need, TurnOp, op_kind
from millrace.model.ops.codec import ALWAYS, wire
from millrace.model.ops.results import ImportStatus, OfImport, ToRecheck


@dataclass(frozen=True, slots=True)
class ImportBegun(OfImport):
    """`repeated`: an earlier request with the same idempotency key began it."""

    repeated: bool


@dataclass(frozen=True, slots=True)
class ImportReceived(ToRecheck):
    pass


@dataclass(frozen=True, slots=True)
class ImportReleased(ToRecheck):
    released: bool = field(default=True, init=False, metadata=ALWAYS)


@op_kind("begin_import")
class BeginImport(TurnOp[ImportBegun]):
    """An upload asks to be admitted. An amendment names the rejected `rows` (a bitmap in base64) of the import `of`.

    `digest` is the SHA-256 of the file, in hexadecimal, if its sender knows it before."""

    import_kind: str = field(default=LOAD, metadata=wire("kind"))
    length: int | None = None
    max_bytes: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    of: str | None = None
    rows: str | None = None
    digest: str | None = None
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.QUOTA})


@op_kind("end_import")
class EndImport(ImportOp[ImportReceived]):
    """All of the upload has been received; `written` says how its rows were written, `content` what was sent: its length
    and, if it was received without a restart of the server, its digest. Lines that repeat the header are no rows."""

    chunks: int
    rows: int
    bytes: int
    written: dict[str, Any] | None = None
    repeated_headers: int = 0
    content: dict[str, Any] | None = None
    IS_ASKED_FOR: ClassVar[bool] = False


@op_kind("cancel_import")
class CancelImport(ImportOp[ImportStatus]):
    pass


@op_kind("expire_import")
class ExpireImport(ImportOp[ImportStatus]):
    """Nothing of the upload arrived for so long."""

    idle_seconds: float = 0


@op_kind("fail_import")
class FailImport(ImportOp[ImportStatus]):
    """The upload cannot be read."""

    error: dict[str, str]


@op_kind("stop_import")
class StopImport(ImportOp[ImportStatus]):
    """The import has more rejected rows than its table allows."""

    error: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledOp(ImportOp[ImportStatus]):
    """All that an import brought is durable: its counts, by sink its durable chunks and the rows that were refused."""

    counts: Counts
    durable: dict[str, int]
    failure: str | None = None
    budget: Budget = NO_BUDGET
    quality: dict[str, Any] | None = None
    refused: dict[str, int] = field(default_factory=dict)
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.TABLE})
    IS_ASKED_FOR: ClassVar[bool] = False


@op_kind("publish_import")
class PublishImport(SettledOp):
    """The rows of an atomic import can be shown."""


@op_kind("settle_import")
class SettleImport(SettledOp):
    pass


@op_kind("hold_import")
class HoldImport(SettledOp):
    """A quality rule is broken: someone must release or cancel the import."""

    quality: dict[str, Any]


@op_kind("note_import")
class NoteImport(ImportOp[ImportStatus]):
    """Something was seen of an import that has not ended; `what` becomes the type of the event."""

    what: str
    data: dict[str, Any]
    IS_ASKED_FOR: ClassVar[bool] = False


@op_kind("release_import")
class ReleaseImport(ImportOp[ImportStatus | ImportReleased]):
    by: str = ""
