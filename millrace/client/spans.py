"""Spans of one tenant over REST: begin, end, abort, keep alive, look, wait."""

import time
from typing import Any, TypedDict, cast

from millrace.client.connection import PATIENCE_SECONDS, Connection, may_pass, path_part
from millrace.client.documents import Rows
from millrace.client.errors import Problem, Unreachable
from millrace.model.errors import Invalid

LONGEST_POLL_SECONDS = 30.0
# These words end a route, so as part of a name they would reach another one.
_VERBS = {"end", "abort", "touch"}


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
    rows: Rows
    begun_at: str
    ended_at: str | None
    seconds: float
    lease_seconds: int
    expires_at: str | None
    error: SpanFault | None


def is_over(span: SpanDocument) -> bool:
    return span["state"] in ("ended", "aborted")


class Spans:
    """Safe to share between threads."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._route = f"/v1/tenants/{path_part(tenant)}/spans"

    def begin(self, name: str, *, lease_seconds: int | None = None) -> SpanDocument:
        """Opens it and every level above it; one that is open already stays as it is."""
        return self._post(name, "", {} if lease_seconds is None else {"lease_seconds": lease_seconds})

    def end(self, name: str) -> SpanDocument:
        """Nothing more joins it; it ends when everything in it has."""
        return self._post(name, "/end", {})

    def abort(self, name: str, *, reason: str = "") -> SpanDocument:
        return self._post(name, "/abort", {"reason": reason})

    def touch(self, name: str) -> SpanDocument:
        """Renews its lease and those of the levels above it."""
        return self._post(name, "/touch", {})

    def show(self, name: str, *, wait: float = 0) -> SpanDocument:
        """The span now, or when it is over, at most `wait` seconds from now."""
        params = {"wait": f"{min(wait, LONGEST_POLL_SECONDS):g}"} if wait else {}
        return cast(SpanDocument, self._connection.json("GET", self._span(name), params=params))

    def list(self, *, state: str | None = None, prefix: str | None = None, limit: int = 100) -> "list[SpanDocument]":
        wanted = {"state": state, "prefix": prefix, "limit": str(limit)}
        params = {name: value for name, value in wanted.items() if value is not None}
        return cast("list[SpanDocument]", self._connection.json("GET", self._route, params=params)["items"])

    def wait(self, name: str, *, timeout: float | None = None, patience: float = PATIENCE_SECONDS) -> SpanDocument:
        """The span once it is over or time is up; a platform away for up to `patience` seconds is no failure."""
        ends = None if timeout is None else time.monotonic() + timeout
        answered = time.monotonic()
        while True:
            left = LONGEST_POLL_SECONDS if ends is None else max(0.0, ends - time.monotonic())
            try:
                span = self.show(name, wait=left)
                answered = time.monotonic()
            except (Unreachable, Problem) as failed:
                if not may_pass(failed) or time.monotonic() - answered > patience:
                    raise
                time.sleep(0.25)
                continue
            if is_over(span) or (ends is not None and time.monotonic() >= ends):
                return span

    def _post(self, name: str, verb: str, body: dict[str, Any]) -> SpanDocument:
        return cast(SpanDocument, self._connection.json("POST", self._span(name) + verb, json=body))

    def _span(self, name: str) -> str:
        parts = name.split("/")
        if not all(parts) or _VERBS & set(parts):
            raise Invalid(f"{name!r} is not a span name.", remedy=f"No level may be empty or one of: {sorted(_VERBS)}.")
        return f"{self._route}/{'/'.join(map(path_part, parts))}"
