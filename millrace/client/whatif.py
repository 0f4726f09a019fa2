"""What-ifs over REST: a file, or the last raw chunks of a table, judged by the platform without importing anything."""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NotRequired, TypedDict, cast

import httpx2

from millrace.client.connection import Connection, path_part
from millrace.client.fileoptions import AS_DECLARED, FileOptions

PIECE_BYTES = 1 << 20
_TIMEOUT = httpx2.Timeout(180.0, connect=10.0)
# Headers as long as this pass every server and proxy on the way.
_LONGEST_PLAIN_HEADER = 4000


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


class ColumnAdvice(TypedDict):
    """`fits`: the types that would take every value, the narrowest first."""

    column: str
    declared: str
    fits: list[FittingType]
    nullable: bool
    advice: str


class TrialReport(TypedDict):
    """`stopped_by`: the bound that ended it early: rows, bytes or seconds."""

    tenant: str
    table: str
    revision: int
    rows: TrialRows
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


class WhatIf:
    """What-ifs about one table. `declaration`: another one than the table has."""

    def __init__(
        self, connection: Connection, tenant: str, table: str, declaration: Mapping[str, Any] | None = None
    ) -> None:
        self._connection = connection
        self._route = f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}/validate"
        self._headers = {} if declaration is None else {"Millrace-Declaration": _as_header(declaration)}

    def file(self, path: Path, options: FileOptions = AS_DECLARED, **bounds: int | None) -> TrialReport:
        """`bounds`: rows, examples."""
        with path.open("rb") as stream:
            return self.stream(stream, options.for_file(path.name), **bounds)

    def stream(self, stream: BinaryIO, options: FileOptions = AS_DECLARED, **bounds: int | None) -> TrialReport:
        return self._ask({**options.as_query(), **_query(bounds)}, _pieces(stream))

    def last_chunks(self, count: int, **bounds: int | None) -> TrialReport:
        """Over the last so many chunks that were sent to the table, as far as the log still holds them."""
        return self._ask({"last": str(count), **_query(bounds)}, None)

    def _ask(self, query: dict[str, str], body: Iterator[bytes] | None) -> TrialReport:
        headers = {"Content-Type": "application/octet-stream", **self._headers}
        answer = self._connection.json(
            "POST", self._route, params=query, headers=headers, content=body, timeout=_TIMEOUT
        )
        return cast(TrialReport, answer)


def _query(bounds: Mapping[str, int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in bounds.items() if value is not None}


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _as_header(declaration: Mapping[str, Any]) -> str:
    text = json.dumps(declaration, separators=(",", ":"))
    return text if len(text) <= _LONGEST_PLAIN_HEADER else base64.b64encode(zlib.compress(text.encode(), 9)).decode()
