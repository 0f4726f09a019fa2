"""Sends a file to the platform: a small one in one request, a large one by tus, which goes on where a connection broke.

The idempotency key is made once per submission, so that a request whose answer was lost is not a second import."""

import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

from millrace.client.connection import Connection
from millrace.client.documents import ImportDocument
from millrace.client.errors import Problem, Unreachable
from millrace.client.file_body import Content, Progress, send_range
from millrace.client.file_options import AS_DECLARED, FileOptions
from millrace.client.patience import PATIENCE_SECONDS, Patience
from millrace.client.resource import at, given

SMALL_FILE_BYTES = 1 << 20
TUS = {"Tus-Resumable": "1.0.0"}
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


def nobody(_sent: int) -> None:
    """The listener of an upload whose progress nobody follows."""


def new_key() -> str:
    return secrets.token_urlsafe(18)


@dataclass(frozen=True, slots=True)
class Submission:
    """What is sent where. An upload without progress for `patience` seconds is given up."""

    tenant: str
    table: str
    options: FileOptions = AS_DECLARED
    idempotency_key: str = field(default_factory=new_key)
    patience: float = PATIENCE_SECONDS
    kind: str = "load"
    span: str | None = None
    wait_turn: bool = True

    def query(self, file_name: str | None = None) -> dict[str, str]:
        """How the file is written and wants to be admitted, as query parameters without the defaults."""
        options = self.options if file_name is None else self.options.for_file(file_name)
        kind, wait_turn = None if self.kind == "load" else self.kind, None if self.wait_turn else False
        return {**options.as_query(), **given(kind=kind, span=self.span, wait_turn=wait_turn)}

    def route(self, last: str) -> str:
        return at("tenants", self.tenant, "tables", self.table, last)


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A file whose import has been admitted and whose bytes are still to be sent."""

    connection: Connection
    import_id: str
    path: Content
    length: int
    offset: int
    patience: float

    def send(self, progress: Progress = nobody) -> ImportDocument:
        """Sends the missing bytes, from the platform's offset on, until it has all or takes no more."""
        patience, offset = Patience(self.patience), self.offset
        while offset < self.length:
            patience.progressed_to(offset)
            progress(offset)
            try:
                offset = send_range(self.connection.endpoint, self.import_id, self.path, offset, self.length, progress)
            except (Problem, Unreachable) as failed:
                if _is_closed(failed):
                    break
                patience.pause_after(failed)
                offset = self._resume_point(patience)
        return self._document(patience)

    def _document(self, patience: Patience) -> ImportDocument:
        """The platform has everything, so a platform that is away for a moment is no failure of the upload."""
        path = at("imports", self.import_id)
        return cast(ImportDocument, patience.repeat(lambda: self.connection.json("GET", path)))

    def _resume_point(self, patience: Patience) -> int:
        """The platform's own offset; the end of the file when the import takes no more."""
        path = at("uploads", self.import_id)
        try:
            response = patience.repeat(lambda: self.connection.ok("HEAD", path, headers=TUS))
        except Problem as failed:
            if _is_closed(failed):
                return self.length
            raise
        return self.length if "Upload-State" in response.headers else int(response.headers["Upload-Offset"])


def _is_closed(failed: Problem | Unreachable) -> bool:
    """Whether the import is over, however it ended."""
    return isinstance(failed, Problem) and (failed.code == "not_open" or failed.status in _GONE)
