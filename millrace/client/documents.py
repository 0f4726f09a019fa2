"""The shapes of the REST answers, as the platform sends them; values are plain JSON."""

from typing import Any, NotRequired, TypedDict

TERMINAL_STATES = frozenset({"completed", "failed", "cancelled"})


class RowCounts(TypedDict):
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


class FaultDocument(TypedDict):
    code: str
    message: str
    remedy: str


class WaitingFor(TypedDict):
    """What an import waits for. `text` goes on behind "waits for"; `kind` is one of those in docs/rest.md."""

    kind: str
    text: str
    remedy: str
    since: str | None
    sink: NotRequired[str]
    next_try: NotRequired[str]


class ImportDocument(TypedDict):
    """An import that is only requested has no bytes, definition or version yet."""

    id: str
    tenant: str
    table: str
    state: str
    rows: RowCounts
    chunks: Chunks
    sinks: dict[str, SinkProgress]
    parked_rejected_chunks: NotRequired[int]
    repeated_headers: NotRequired[int]
    started_at: str | None
    ended_at: str | None
    error: FaultDocument | None
    waiting_for: NotRequired[WaitingFor | None]
    bytes: NotRequired[int]
    file_name: NotRequired[str | None]
    definition: NotRequired[str]
    first_version: NotRequired[int]
    rows_per_second: NotRequired[float | None]
    eta_seconds: NotRequired[float | None]
    rejected_rows: NotRequired[dict[str, int]]


class AmendmentDocument(ImportDocument):
    """The import of corrected rows: it closes `closed` of the `of` rows that were open, and brings `added` others."""

    closed: int
    of: int
    open: int
    added: int


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
    state: NotRequired[str]


class ErrorPage(TypedDict):
    items: list[RejectedRow]
    next: str | None
    states: NotRequired[dict[str, int]]


class TableColumn(TypedDict):
    name: str
    type: str
    nullable: bool


class TableDocument(TypedDict):
    tenant: str
    table: str
    revision: int
    definition: str
    location: str
    columns: list[TableColumn]
    primary_key: list[str]
    declaration: dict[str, Any]


class DeclarationWarning(TypedDict):
    """A value that can be read but hardly be meant."""

    field: str
    message: str
    likely: str


class Difference(TypedDict):
    """`revision` is the one in force, 0 if there is none; without changes and refusal nothing would happen."""

    new: bool
    revision: int
    changes: list[str]
    ddl: list[str]
    refusal: FaultDocument | None
    warnings: list[DeclarationWarning]


class DeclarationResult(TypedDict):
    """What a declaration led to; only `op` and `state` when the controller has not evaluated it in time."""

    revision: NotRequired[int]
    changed: NotRequired[bool]
    changes: NotRequired[list[str]]
    warnings: NotRequired[list[DeclarationWarning]]
    op: NotRequired[str]
    state: NotRequired[str]


class SpanFault(TypedDict):
    """`member`: the import, the request or the span that could not complete."""

    code: str
    message: str
    member: str


class SpanDocument(TypedDict):
    tenant: str
    name: str
    parent: str | None
    state: str
    imports: int
    open_members: int
    rows: RowCounts
    begun_at: str
    ended_at: str | None
    seconds: float
    lease_seconds: int
    expires_at: str | None
    error: SpanFault | None


class Lag(TypedDict):
    events: int
    seconds: float


class SubscriptionDocument(TypedDict):
    """`secret` is there only in the answer that made it."""

    tenant: str
    name: str
    url: str
    types: list[str]
    order: str
    enabled: bool
    created_at: str
    delivered: int
    given_up: int
    last_delivered: dict[str, Any] | None
    last_error: dict[str, Any] | None
    lag: Lag
    old_secret_until: str | None
    secret: NotRequired[str]


class Delivery(TypedDict):
    """What came of one event sent to a webhook."""

    delivered: bool
    status: int | None
    error: dict[str, str] | None
    seconds: float


class TrialRows(TypedDict):
    read: int
    passed: int
    failed: int


class TrialExample(TypedDict):
    row: int
    line: int | None
    value: str | None
    message: str


class TrialReason(TypedDict):
    rule: str
    column: str | None
    rows: int
    examples: list[TrialExample]


class FittingType(TypedDict):
    type: str
    avro: Any


class AdviceCells(TypedDict):
    seen: int
    fitting: int


class ColumnAdvice(TypedDict):
    """`fits`: the types that would take every value, the narrowest first. `declare`: what to declare about the column; then
    `fitting` of the cells fit. `bad_lines`: where the first bad cells are."""

    column: str
    declared: str
    fits: list[FittingType]
    nullable: bool
    declare: dict[str, Any]
    cells: AdviceCells
    bad_lines: list[int]
    advice: str


class TrialReport(TypedDict):
    """`stopped_by`: the bound that ended it early: rows, bytes or seconds."""

    tenant: str
    table: str
    revision: int
    rows: TrialRows
    repeated_headers: int
    chunks: int
    bytes: int
    stopped_by: str | None
    reasons: list[TrialReason]
    columns: list[ColumnAdvice]
    seconds: float
    file: NotRequired[str | None]
    judged_by: NotRequired[str]
    asked_chunks: NotRequired[int]
    looked_everywhere: NotRequired[bool]
    since: NotRequired[str]
    missing_chunks: NotRequired[int]


class ResultColumn(TypedDict):
    name: str
    type: str


class QueryResult(TypedDict):
    columns: list[ResultColumn]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


class HealthDocument(TypedDict):
    """`tables` are those that cannot be written, as far as the token may see them; `parked_tables` counts all."""

    status: str
    parts: dict[str, Any]
    parked_tables: int
    tables: NotRequired[list[dict[str, Any]]]


class EventPage(TypedDict):
    items: list[dict[str, Any]]
    last: int


def is_over(document: ImportDocument) -> bool:
    return document["state"] in TERMINAL_STATES


def waits_for(document: ImportDocument) -> str:
    """In words, with what to do about it; empty if nothing is in the import's way."""
    waiting = document.get("waiting_for")
    return "" if waiting is None else f"waits for {waiting['text']} {waiting['remedy']}".strip()


def is_span_over(span: SpanDocument) -> bool:
    return span["state"] in ("ended", "aborted")
