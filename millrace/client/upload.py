"""Sends a file to the platform: a small one in one request, a large one by tus, which goes on where a connection broke.

The idempotency key is made once per submission, so that a request whose answer was lost is not a second import."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, cast

from millrace.client.connection import Connection
from millrace.client.documents import ImportDocument
from millrace.client.errors import Problem, Unreachable
from millrace.client.file_body import PIECE_BYTES, Content, Progress, send_range
from millrace.client.file_options import AS_DECLARED, FileOptions
from millrace.client.patience import PATIENCE_SECONDS, Patience
from millrace.client.resource import at

SMALL_FILE_BYTES = 1 << 20
_TUS = {"Tus-Resumable": "1.0.0"}
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

    def admission(self) -> dict[str, str]:
        """How it wants to be admitted, as query parameters without the defaults."""
        wanted = {"kind": None if self.kind == "load" else self.kind, "span": self.span}
        wanted["wait_turn"] = None if self.wait_turn else "false"
        return {name: value for name, value in wanted.items() if value is not None}

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
        while True:
            try:
                return cast(ImportDocument, self.connection.json("GET", at("imports", self.import_id)))
            except (Problem, Unreachable) as failed:
                patience.pause_after(failed)

    def _resume_point(self, patience: Patience) -> int:
        """The platform's own offset; the end of the file when the import takes no more."""
        while True:
            try:
                response = self.connection.ok("HEAD", at("uploads", self.import_id), headers=_TUS)
            except (Problem, Unreachable) as failed:
                if _is_closed(failed):
                    return self.length
                patience.pause_after(failed)
            else:
                return self.length if "Upload-State" in response.headers else int(response.headers["Upload-Offset"])


def _is_closed(failed: Problem | Unreachable) -> bool:
    """Whether the import is over, however it ended."""
    return isinstance(failed, Problem) and (failed.code == "not_open" or failed.status in _GONE)


def begin_upload(connection: Connection, path: Content, submission: Submission) -> PendingUpload:
    """Has the import admitted; its bytes follow with `send`."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
    patience = Patience(submission.patience)
    headers = {**_TUS, "Upload-Length": str(length), "Idempotency-Key": submission.idempotency_key}
    query = {**submission.options.for_file(path.name).as_query(), **submission.admission()}
    while True:
        try:
            response = connection.ok("POST", submission.route("uploads"), params=query, headers=headers)
            break
        except (Problem, Unreachable) as failed:
            patience.pause_after(failed)
    import_id = response.headers["Location"].rstrip("/").rpartition("/")[2]
    return PendingUpload(
        connection, import_id, path, length, int(response.headers.get("Upload-Offset", "0")), submission.patience
    )


def upload_file(
    connection: Connection, path: Path, submission: Submission, progress: Progress = nobody
) -> ImportDocument:
    """The import's document once the platform has the whole file; `imports.wait` returns when it is over."""
    if path.stat().st_size > SMALL_FILE_BYTES:
        return begin_upload(connection, path, submission).send(progress)
    body, patience = path.read_bytes(), Patience(submission.patience)
    query = {**submission.options.for_file(path.name).as_query(), **submission.admission()}
    while True:
        try:
            document = _post(connection, submission, body, query)
        except (Problem, Unreachable) as failed:
            patience.pause_after(failed)
        else:
            progress(len(body))
            return document


def upload_stream(
    connection: Connection, stream: BinaryIO, submission: Submission, progress: Progress = nobody
) -> ImportDocument:
    """Sends what can be read only once in one request; fails if that breaks."""
    query = {**submission.options.as_query(), **submission.admission()}
    return _post(connection, submission, _pieces(stream, progress), query)


def _post(
    connection: Connection, submission: Submission, body: bytes | Iterator[bytes], query: dict[str, str]
) -> ImportDocument:
    headers = {"Idempotency-Key": submission.idempotency_key, "Content-Type": "application/octet-stream"}
    return cast(
        ImportDocument,
        connection.json("POST", submission.route("imports"), content=body, params=query, headers=headers),
    )


def _pieces(stream: BinaryIO, progress: Progress) -> Iterator[bytes]:
    sent = 0
    while piece := stream.read(PIECE_BYTES):
        yield piece
        sent += len(piece)
        progress(sent)
