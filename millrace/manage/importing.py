"""Claimed files in, ended imports out: those of one run, or of one moment, in one span, each filed away with its report.

A file's table is its sub-folder of `out`, else the tenant's only one. Files are admitted in the order in which they were
finished, so that the later one wins, and sent at the same time. A file that cannot be imported spoils its span and nothing
else: the rest goes on in the next one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millrace.client import Millrace, Problem, Submission, Unreachable, Upload
from millrace.client.connection import may_pass
from millrace.client.documents import ImportDocument
from millrace.client.spans import Spans
from millrace.failpoint import reach
from millrace.manage.claiming import Claim, file_away, file_of, is_plain, tried_again
from millrace.manage.route import Route
from millrace.model.errors import Clash, Invalid, MillraceError, Refused
from millrace.staging.folders import Staging

# Sent before the next ones are admitted: none may wait so long for its bytes that the platform gives it up.
WAVE = 32
SENT_AT_ONCE = 8
PATIENCE_SECONDS = 30.0
MOST_ATTEMPTS = 5
NO_ROWS = {"read": 0, "accepted": 0, "rejected": 0, "ignored": 0}
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are imported in one span. `is_new`: none of them was tried before."""

    run: str
    span: str
    claims: tuple[Claim, ...]
    is_new: bool = True


def table_of(path: str, tables: Sequence[str]) -> str:
    """The table that a file of `out` goes to. Refuses with the names of the tables there are."""
    folder, slash, _ = path.partition("/")
    if slash and folder in tables:
        return folder
    if not slash and len(tables) == 1:
        return tables[0]
    what = f"{folder!r:.80} is no table." if slash else f"The file names no table, and there are {len(tables)}."
    known = ", ".join(sorted(tables)) or "none is declared"
    raise Invalid(what, remedy=f"Write it into a sub-folder of out that is named by a table: {known}.", code="no_table")


class Importer:
    """Safe to use for several groups at once. Raises what may pass: the same group may then be brought again."""

    def __init__(
        self, connection: Millrace, senders: ThreadPoolExecutor, on_report: Callable[[str, Report], None]
    ) -> None:
        self._connection = connection
        self._senders = senders
        self._on_report = on_report

    def bring(self, staging: Staging, group: Group) -> list[str]:
        """Returns when every file of the group has been filed away: the spans they were in."""
        ready = self._sorted_out(staging, group)
        route = Route(Spans(self._connection, staging.tenant), group.span)
        if ready and group.is_new:
            route.begin()
            reach("manage_after_span")
        while ready:
            admitted: list[tuple[Claim, str, str]] = []
            for at in range(0, len(ready), WAVE):
                admitted += self._wave(staging, ready[at : at + WAVE], route)
            reach("manage_after_send")
            route.end()
            ready = [again for each in admitted if (again := self._ended(staging, *each)) is not None]
        return route.begun

    def _sorted_out(self, staging: Staging, group: Group) -> list[tuple[Claim, str]]:
        """Each with its table; what can have none is filed away."""
        tables = self._connection.tenant(staging.tenant)["tables"]
        ready = []
        for claim in group.claims:
            try:
                if not is_plain(file_of(staging, claim)):
                    raise Invalid(f"{claim.path!r:.80} is no plain file.", remedy="Write files, not links or devices.")
                ready.append((claim, table_of(claim.path, tables)))
            except Refused as refused:
                self.refuse(staging, claim, refused)
        return ready

    def _wave(self, staging: Staging, wave: Sequence[tuple[Claim, str]], route: Route) -> list[tuple[Claim, str, str]]:
        """Admits them in order and sends them at once: each with its table and its import."""
        begun: list[tuple[Claim, str, Upload | str]] = []
        for claim, table in wave:
            try:
                begun.append((claim, table, self._admit(staging, claim, table, route)))
            except Problem as refused:
                if may_pass(refused):
                    raise
                self._file(staging, claim, table, _fault(refused), refused.import_id)
        reach("manage_after_admit")
        sending = [self._senders.submit(_send, upload) for _, _, upload in begun]
        return [(claim, table, sent.result()) for (claim, table, _), sent in zip(begun, sending, strict=True)]

    def _admit(self, staging: Staging, claim: Claim, table: str, route: Route) -> Upload | str:
        path = file_of(staging, claim)
        while True:
            submission = Submission(
                staging.tenant,
                table,
                idempotency_key=claim.idempotency_key,
                patience=PATIENCE_SECONDS,
                span=route.span,
            )
            try:
                if path.stat().st_size == 0:
                    return self._connection.upload_file(path, submission)["id"]
                return self._connection.begin_upload(path, submission)
            except Problem as refused:
                if not route.goes_on_after(refused):
                    raise

    def _ended(self, staging: Staging, claim: Claim, table: str, import_id: str) -> tuple[Claim, str] | None:
        """Files it away when its import is over; the claim again if that broke off without harm."""
        document = self._connection.wait(import_id)
        reach("manage_after_end")
        error: Any = document["error"]
        if error is not None and error["code"] == "expired" and claim.attempt < MOST_ATTEMPTS:
            if self._may_repeat(document):
                return tried_again(staging, claim), table
            unsure = Clash(
                f"The import broke off after {document['rows']['read']} rows, and the table has no primary key.",
                remedy="Importing the file again would double them: mend it by hand.",
                code="broke_off",
            )
            error = _fault(unsure)
        self._file(staging, claim, table, error, import_id, document)
        return None

    def _may_repeat(self, document: ImportDocument) -> bool:
        if document["rows"]["read"] == 0:
            return True
        return bool(self._connection.table(document["tenant"], document["table"])["primary_key"])

    def refuse(self, staging: Staging, claim: Claim, why: Refused) -> None:
        """For what must not be imported."""
        self._file(staging, claim, None, _fault(why))

    def _file(
        self,
        staging: Staging,
        claim: Claim,
        table: str | None,
        error: Any,
        import_id: str | None = None,
        document: ImportDocument | None = None,
    ) -> None:
        report = {
            "claim": claim.id,
            "file": claim.path,
            "bytes": file_of(staging, claim).lstat().st_size,
            "table": table,
            "import": import_id,
            "state": "failed" if document is None else document["state"],
            "rows": NO_ROWS if document is None else document["rows"],
            "error": error,
            "run": claim.run,
            "span": claim.span,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        self._on_report(claim.run, report)
        file_away(staging, claim, report)


def _send(upload: Upload | str) -> str:
    """The import, whatever became of it: its document tells."""
    if isinstance(upload, str):
        return upload
    try:
        return upload.send()["id"]
    except (Problem, Unreachable) as failed:
        if may_pass(failed):
            raise
        return upload.import_id


def _fault(error: MillraceError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "remedy": error.remedy}
