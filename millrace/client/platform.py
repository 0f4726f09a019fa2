"""The platform as an object: a method for every route, typed answers, uploads that survive broken connections."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from millrace.client.connection import PATIENCE_SECONDS, Connection, may_pass, path_part
from millrace.client.documents import (
    Applied,
    ErrorPage,
    EventPage,
    Health,
    ImportDocument,
    QueryResult,
    RejectedRow,
    TableDocument,
    is_over,
)
from millrace.client.errors import Problem, Unreachable, problem_from
from millrace.client.sender import Content, Progress
from millrace.client.stream import OnRejected, RowStream
from millrace.client.upload import Submission, Upload, begin_upload, nobody, upload_file, upload_stream

LONGEST_POLL_SECONDS = 30.0


class Millrace(Connection):
    """Safe to share between threads."""

    def health(self) -> Health:
        """Also when the platform is degraded: the answer names the part."""
        response = self.send("GET", "/v1/health")
        if response.status_code not in (200, 503) or "parts" not in response.text:
            raise problem_from(response.status_code, response.content)
        return cast(Health, response.json())

    def apply_tenant(self, tenant: str, agreement: Mapping[str, Any]) -> Applied:
        return cast(Applied, self.json("PUT", f"/v1/tenants/{path_part(tenant)}", json=agreement))

    def tenants(self) -> list[dict[str, Any]]:
        return _items(self.json("GET", "/v1/tenants"))

    def tenant(self, tenant: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.json("GET", f"/v1/tenants/{path_part(tenant)}"))

    def apply_table(self, tenant: str, table: str, declaration: Mapping[str, Any]) -> Applied:
        return cast(Applied, self.json("PUT", _table_route(tenant, table), json=declaration))

    def tables(self, tenant: str) -> list[TableDocument]:
        return cast(list[TableDocument], _items(self.json("GET", f"/v1/tenants/{path_part(tenant)}/tables")))

    def table(self, tenant: str, table: str) -> TableDocument:
        return cast(TableDocument, self.json("GET", _table_route(tenant, table)))

    def op(self, op: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.json("GET", f"/v1/ops/{path_part(op)}"))

    def upload_file(self, path: Path, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The import's document once the platform has the whole file; `wait` tells when it is over."""
        return upload_file(self, path, submission, progress)

    def upload_stream(self, stream: BinaryIO, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The same for what can be read only once."""
        return upload_stream(self, stream, submission, progress)

    def begin_upload(self, path: Content, submission: Submission) -> Upload:
        """Has the import admitted; its bytes follow with `send`."""
        return begin_upload(self, path, submission)

    def stream(
        self,
        tenant: str,
        table: str,
        *,
        stream_id: str | None = None,
        span: str | None = None,
        on_rejected: OnRejected | None = None,
    ) -> RowStream:
        """Rows sent as they come, for use in a `with` block; see RowStream."""
        return RowStream(self, tenant, table, stream_id=stream_id, span=span, on_rejected=on_rejected)

    def imports(
        self, *, tenant: str | None = None, table: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[ImportDocument]:
        wanted = {"tenant": tenant, "table": table, "state": state, "limit": str(limit)}
        params = {name: value for name, value in wanted.items() if value is not None}
        return cast(list[ImportDocument], _items(self.json("GET", "/v1/imports", params=params)))

    def import_(self, import_id: str, *, wait: float = 0, or_held: bool = False) -> ImportDocument:
        """Its document now, or when it is over (with `or_held` also: held), at most `wait` seconds from now."""
        held = {"or_held": "true"} if or_held else {}
        params = {"wait": f"{min(wait, LONGEST_POLL_SECONDS):g}", **held} if wait else {}
        return cast(ImportDocument, self.json("GET", f"/v1/imports/{path_part(import_id)}", params=params))

    def wait(
        self, import_id: str, *, timeout: float | None = None, patience: float = PATIENCE_SECONDS
    ) -> ImportDocument:
        """Its document once it is over or time is up; a platform away for up to `patience` seconds is no failure."""
        ends = None if timeout is None else time.monotonic() + timeout
        answered = time.monotonic()
        while True:
            remaining = LONGEST_POLL_SECONDS if ends is None else max(0.0, ends - time.monotonic())
            try:
                document = self.import_(import_id, wait=remaining)
                answered = time.monotonic()
            except (Unreachable, Problem) as failed:
                if not may_pass(failed) or time.monotonic() - answered > patience:
                    raise
                time.sleep(0.25)
                continue
            if is_over(document) or (ends is not None and time.monotonic() >= ends):
                return document

    def cancel(self, import_id: str) -> ImportDocument:
        return cast(ImportDocument, self.json("POST", f"/v1/imports/{path_part(import_id)}/cancel"))

    def error_page(self, import_id: str, *, limit: int = 100, cursor: str | None = None) -> ErrorPage:
        params = {"limit": str(limit), **({"cursor": cursor} if cursor else {})}
        return cast(ErrorPage, self.json("GET", f"/v1/imports/{path_part(import_id)}/errors", params=params))

    def errors(self, import_id: str, *, limit: int | None = None, page: int = 1000) -> Iterator[RejectedRow]:
        """Rejected rows in file order, fetched a page at a time."""
        left, cursor = limit, None
        while left is None or left > 0:
            found = self.error_page(import_id, limit=page if left is None else min(page, left), cursor=cursor)
            yield from found["items"]
            left, cursor = None if left is None else left - len(found["items"]), found["next"]
            if cursor is None:
                return

    def export_errors(self, import_id: str, format: str) -> Iterator[bytes]:
        """All rejected rows as one CSV or JSON Lines file, in pieces."""
        yield from self.pieces(f"/v1/imports/{path_part(import_id)}/errors/export", {"format": format})

    def events(self, *, after: int = 0, limit: int = 100, newest: bool = False) -> EventPage:
        """A page of events in order, from `after` on; with `newest`, the last ones."""
        params = {"after": str(after), "limit": str(limit), **({"newest": "true"} if newest else {})}
        return cast(EventPage, self.json("GET", "/v1/events", params=params))

    def follow_events(
        self, *, after: int | None = None, patience: float = PATIENCE_SECONDS
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each event with its number as it happens, until closed; a broken stream is taken up where it stopped.

        It ends when no connection could be made for `patience` seconds, however quiet the platform was before."""
        last, failing_since = after, None

        def opened() -> None:
            nonlocal failing_since
            failing_since = None

        while not self.is_closed:
            try:
                for number, event in self.server_sent("/v1/events/stream", last, opened):
                    last = number
                    yield number, event
            except (Unreachable, Problem) as failed:
                now = time.monotonic()
                failing_since = failing_since or now
                if not may_pass(failed) or now - failing_since > patience:
                    raise
                time.sleep(0.5)

    def query(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        body = {"sql": sql, **({} if max_rows is None else {"max_rows": max_rows})}
        return cast(QueryResult, self.json("POST", "/v1/query", json=body))

    def create_token(self, name: str, *, tenant: str | None = None, role: str | None = None) -> str:
        """A new token, shown this once; without a role it may do everything where it is."""
        return str(self.make_token(name, tenant=tenant, role=role)["token"])

    def make_token(
        self,
        name: str,
        *,
        tenant: str | None = None,
        role: str | None = None,
        tables: list[str] | None = None,
        days: float | None = None,
    ) -> dict[str, Any]:
        """The same with all that is known of it; `tables` limits it to some, and it expires after `days`."""
        wanted = {"name": name, "tenant": tenant, "role": role, "tables": tables, "days": days}
        return cast(dict[str, Any], self.json("POST", "/v1/tokens", json=wanted))

    def tokens(self, tenant: str | None = None) -> list[dict[str, Any]]:
        return _items(self.json("GET", "/v1/tokens", params=_of(tenant)))

    def delete_token(self, name: str, tenant: str | None = None) -> None:
        self.ok("DELETE", f"/v1/tokens/{path_part(name)}", params=_of(tenant))

    def audit(self, tenant: str | None = None, *, limit: int = 100) -> list[dict[str, Any]]:
        """The latest entries of the audit log, in order."""
        params = {"newest": "true", "limit": str(limit), **_of(tenant)}
        return _items(self.json("GET", "/v1/audit", params=params))

    def usage(self, tenant: str, *, days: int = 30) -> dict[str, Any]:
        """By day, the newest first, with the quotas and the lag."""
        return cast(
            dict[str, Any], self.json("GET", f"/v1/tenants/{path_part(tenant)}/usage", params={"days": str(days)})
        )

    def metrics(self) -> str:
        return self.ok("GET", "/metrics").text


def _items(body: Any) -> list[Any]:
    return list(body["items"]) if isinstance(body, dict) else list(body)


def _of(tenant: str | None) -> dict[str, str]:
    return {} if tenant is None else {"tenant": tenant}


def _table_route(tenant: str, table: str) -> str:
    return f"/v1/tenants/{path_part(tenant)}/tables/{path_part(table)}"
