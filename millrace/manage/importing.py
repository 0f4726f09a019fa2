"""Claimed files in, ended imports out: those of one run, or of one moment, in one span, each filed away with its report.

A file's table is its sub-folder of `out`, else the tenant's only one. Files are admitted in the order in which they were
finished, so that the later one wins, and sent at the same time. A file that cannot be imported spoils its span and nothing
else: the rest goes on in the next one."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.beneath.folder import is_plain
from millrace.client import PendingUpload, Problem, Submission, Unreachable
from millrace.client.documents import ImportDocument
from millrace.exchange.app_folders import Staging
from millrace.failpoint import reach
from millrace.manage.claiming import (
    Claim,
    changed,
    close_up,
    content,
    file_away,
    file_of,
    may_be_read,
    size_of,
    with_new_key,
)
from millrace.manage.openrun import now_text
from millrace.manage.route import Route
from millrace.manage.tools import Tools
from millrace.manage.turns import Turns
from millrace.model.errors import Clash, Corrupt, Invalid, KeyGone, MillraceError, Refused
from millrace.observe import log

# Admitted and not yet sent: none may wait so long for its bytes that the platform gives it up.
SENT_AT_ONCE = 8
PATIENCE_SECONDS = 30.0
MOST_ATTEMPTS = 5
NO_ROWS = {"read": 0, "accepted": 0, "rejected": 0, "ignored": 0}
Report = dict[str, Any]
Ready = tuple[Claim, str]


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """Files that are imported in one span. `is_new`: none of them was tried before. `turn`: its place among the groups."""

    run: str
    span: str
    claims: tuple[Claim, ...]
    turn: int
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
    """Of one tenant; safe to use for several groups at once. Raises what may pass: the group may then be brought again."""

    def __init__(self, tools: Tools, staging: Staging, on_report: Callable[[str, Report], None]) -> None:
        self._connection = tools.connection
        self._senders = tools.senders
        self._keys = tools.keys
        self._staging = staging
        self._on_report = on_report
        self._slots = threading.Semaphore(SENT_AT_ONCE)
        self.turns = Turns()

    def bring(self, group: ClaimGroup) -> list[str]:
        """Returns when every file of the group has been filed away: the spans that were begun for them."""
        claims = [self._closed_up(claim) for claim in group.claims]
        self.turns.wait(group.turn)
        route = Route(self._connection.spans, self._staging.tenant, group.span, group.is_new)
        ready = self._with_tables(claims)
        if ready and group.is_new:
            ready = self._in_span(ready, route)
            reach("manage_after_span")
        while ready:
            sent = self._submitted(ready, route)
            self.turns.through(group.turn)
            imports = [(claim, table, future.result()) for claim, table, future in sent]
            reach("manage_after_send")
            route.end()
            ready = [again for each in imports if (again := self._ended(*each)) is not None]
        self.turns.through(group.turn)
        return route.begun

    def _closed_up(self, claim: Claim) -> Claim:
        """As it may lie here. A sealed copy of a link would no longer show what it was: that is said before."""
        path = file_of(self._staging, claim)
        is_unread = os.path.lexists(path) and is_plain(path.lstat()) and not may_be_read(path)
        if claim.fault is None and os.path.lexists(path) and not is_plain(path.lstat()):
            why = Invalid(f"{claim.path!r:.80} is no plain file.", remedy="Write files, not links or devices.")
            claim = changed(self._staging, claim, fault=fault_of(why))
        elif claim.fault is None and is_unread:
            why = Invalid(f"{claim.path!r:.80} may not be read.", remedy="Let the group read it (chmod g+r).")
            claim = changed(self._staging, claim, fault=fault_of(why))
        if claim.data_key and not is_unread:
            try:
                close_up(self._staging, claim, self._keys())
            except KeyGone:
                # It was destroyed while the file was plain still.
                claim = with_new_key(self._staging, claim)
                close_up(self._staging, claim, self._keys())
        return claim

    def _with_tables(self, claims: Sequence[Claim]) -> list[Ready]:
        """What has a fault already, or can have no table, is filed away."""
        for claim in claims:
            if claim.fault is not None:
                self._file(claim, None, claim.fault)
        claims = [claim for claim in claims if claim.fault is None]
        if not claims:
            return []
        try:
            tables = self._connection.tenants.show(self._staging.tenant)["tables"]
        except Problem as failed:
            if failed.may_pass:
                raise
            tables = []
        ready = []
        for claim in claims:
            try:
                ready.append((claim, table_of(claim.path, tables)))
            except Refused as why:
                self._file(claim, None, fault_of(why))
        return ready

    def _in_span(self, ready: list[Ready], route: Route) -> list[Ready]:
        """A tenant that can have no span can have no imports."""
        try:
            route.begin()
        except Problem as why:
            if why.may_pass:
                raise
            for claim, table in ready:
                self._file(claim, table, fault_of(why))
            return []
        return ready

    def _submitted(self, ready: Sequence[Ready], route: Route) -> list[tuple[Claim, str, "Future[str]"]]:
        """Admits them in order; each is sent as soon as it is admitted, and none is admitted that cannot be."""
        sent: list[tuple[Claim, str, Future[str]]] = []
        try:
            for claim, table in ready:
                self._slots.acquire()
                try:
                    upload = self._admit(claim, table, route)
                except BaseException as failed:
                    self._slots.release()
                    if isinstance(failed, Corrupt | KeyGone):
                        self._file(claim, table, fault_of(failed))
                    elif isinstance(failed, Problem) and not failed.may_pass:
                        self._file(claim, table, fault_of(failed), failed.import_id)
                    else:
                        raise
                    continue
                sent.append((claim, table, self._senders.submit(self._send, upload)))
        except BaseException:
            wait([future for _, _, future in sent])
            raise
        reach("manage_after_admit")
        return sent

    def _admit(self, claim: Claim, table: str, route: Route) -> PendingUpload | str:
        path = content(self._staging, claim, self._keys)
        while True:
            submission = Submission(
                self._staging.tenant,
                table,
                idempotency_key=claim.idempotency_key,
                patience=PATIENCE_SECONDS,
                span=route.span,
            )
            try:
                if isinstance(path, Path) and path.stat().st_size == 0:
                    return self._connection.imports.send_file(path, submission)["id"]
                return self._connection.imports.begin_upload(path, submission)
            except Problem as why:
                if not route.goes_on_after(why):
                    raise

    def _send(self, upload: PendingUpload | str) -> str:
        """The import, whatever became of it: its document tells."""
        try:
            return upload if isinstance(upload, str) else upload.send()["id"]
        except (Corrupt, KeyGone) as lost:
            assert isinstance(upload, PendingUpload)
            log("app_file_unreadable", tenant=self._staging.tenant, import_id=upload.import_id, error=str(lost))
            return self._connection.imports.cancel(upload.import_id)["id"]
        except (Problem, Unreachable) as failed:
            if failed.may_pass or isinstance(upload, str):
                raise
            return upload.import_id
        finally:
            self._slots.release()

    def _ended(self, claim: Claim, table: str, import_id: str) -> Ready | None:
        """Files it away when its import is over; the claim again if that broke off without harm."""
        document = self._connection.imports.wait(import_id)
        reach("manage_after_end")
        error: Any = document["error"]
        if error is not None and error["code"] == "expired" and claim.attempt < MOST_ATTEMPTS:
            if self._may_repeat(document):
                return changed(self._staging, claim, attempt=claim.attempt + 1), table
            unsure = Clash(
                f"The import broke off after {document['rows']['read']} rows, and the table has no primary key.",
                remedy="Importing the file again would double them: mend it by hand.",
                code="broke_off",
            )
            error = fault_of(unsure)
        self._file(claim, table, error, import_id, document)
        return None

    def _may_repeat(self, document: ImportDocument) -> bool:
        if document["rows"]["read"] == 0:
            return True
        return bool(self._connection.tables.show(document["tenant"], document["table"])["primary_key"])

    def _file(
        self,
        claim: Claim,
        table: str | None,
        error: Any,
        import_id: str | None = None,
        document: ImportDocument | None = None,
    ) -> None:
        report = {
            "claim": claim.id,
            "file": claim.path,
            "bytes": size_of(self._staging, claim),
            "table": table,
            "import": import_id,
            "state": "failed" if document is None else document["state"],
            "rows": NO_ROWS if document is None else document["rows"],
            "error": error,
            "run": claim.run,
            "span": claim.span,
            "at": now_text(),
        }
        self._on_report(claim.run, report)
        file_away(self._staging, claim, report)


def fault_of(error: MillraceError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "remedy": error.remedy}
