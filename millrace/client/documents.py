"""The shapes of the REST answers, as the platform sends them; values are plain JSON."""

from typing import Any, NotRequired, TypedDict

TERMINAL_STATES = frozenset({"completed", "failed", "cancelled"})


class Rows(TypedDict):
    read: int
    accepted: int
    rejected: int
    ignored: int


class Chunks(TypedDict):
    sent: int
    judged: int


class SinkProgress(TypedDict):
    durable_chunks: int
    parked_chunks: int
    refused_rows: int


class ImportFault(TypedDict):
    code: str
    message: str
    remedy: str


class ImportDocument(TypedDict):
    """An import that is only requested has no bytes, definition or version yet."""

    id: str
    tenant: str
    table: str
    state: str
    rows: Rows
    chunks: Chunks
    sinks: dict[str, SinkProgress]
    started_at: str | None
    ended_at: str | None
    error: ImportFault | None
    bytes: NotRequired[int]
    file_name: NotRequired[str | None]
    definition: NotRequired[str]
    first_version: NotRequired[int]
    rows_per_second: NotRequired[float | None]
    eta_seconds: NotRequired[float | None]


class Reason(TypedDict):
    column: str | None
    rule: str
    message: str
    value: str | None


class RejectedRow(TypedDict):
    row: int
    line: int | None
    raw: str
    reasons: list[Reason]


class ErrorPage(TypedDict):
    items: list[RejectedRow]
    next: str | None


class Column(TypedDict):
    name: str
    type: str
    nullable: bool


class TableDocument(TypedDict):
    tenant: str
    table: str
    revision: int
    definition: str
    location: str
    columns: list[Column]
    primary_key: list[str]
    declaration: dict[str, Any]


class Applied(TypedDict):
    """What a declaration came to; `op` and `state` instead when it has not been evaluated in time."""

    revision: NotRequired[int]
    changed: NotRequired[bool]
    warnings: NotRequired[list[Any]]
    op: NotRequired[str]
    state: NotRequired[str]


class ResultColumn(TypedDict):
    name: str
    type: str


class QueryResult(TypedDict):
    columns: list[ResultColumn]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


class Health(TypedDict):
    status: str
    parts: dict[str, Any]


class EventPage(TypedDict):
    items: list[dict[str, Any]]
    last: int


def is_over(document: ImportDocument) -> bool:
    return document["state"] in TERMINAL_STATES
