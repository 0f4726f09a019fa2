"""Ops about rows: sent by senders, and rejected rows that are tried again or given up."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from millrace.model.ops.base import Need, TableOp, TurnOp, op_kind
from millrace.model.ops.codec import wire
from millrace.model.ops.results import ImportStatus, Result, ToRecheck


@dataclass(frozen=True, slots=True)
class RowsAppended(ToRecheck):
    version: int


@dataclass(frozen=True, slots=True)
class SenderOpened(Result):
    """`seq` is the number of the sender's last row in the log; `digest` that of the rows of a request with a key."""

    sender: str = field(metadata=wire("stream"))
    seq: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayBegun(ToRecheck):
    replays: str


@op_kind("append")
class Append(TurnOp[RowsAppended]):
    """Rows that travel in the op: compressed, sealed if there is a `key`, in base64. By sender its first and last row.

    With a `log_key` they are sealed for their time in the log alone: the controller opens them. Once that key is deleted, the
    op has no payload any more. `digests` are those of the rows of requests that have an idempotency key, by sender."""

    rows: int
    plain_bytes: int
    checksum: int
    payload: str
    senders: dict[str, tuple[int, int]] = field(default_factory=dict, metadata=wire("streams"))
    key: str | None = None
    log_key: str | None = None
    digests: dict[str, str] = field(default_factory=dict)
    IS_ASKED_FOR: ClassVar[bool] = False

    @property
    def sender_names(self) -> Collection[str]:
        return self.senders


@op_kind("open_stream")
class OpenSender(TurnOp[SenderOpened]):
    """Asks where a sender stands; every append that was asked for before is counted."""

    sender: str = field(metadata=wire("stream"))

    @property
    def sender_names(self) -> Collection[str]:
        return (self.sender,)


@op_kind("replay_errors")
class ReplayErrors(TurnOp[ReplayBegun]):
    """Rejected rows of the import `of` are judged again, under the versions they had. `rows` is a bitmap in base64."""

    of: str
    rows: str
    rows_count: int
    chunks: int
    first_version: int
    NEEDS: ClassVar[frozenset[Need]] = frozenset({Need.QUOTA})


@op_kind("discard_errors")
class DiscardErrors(TableOp[ImportStatus]):
    of: str
    rows: str
