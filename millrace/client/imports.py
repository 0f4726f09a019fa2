"""Imports: files sent, followed, cancelled and released."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from millrace.client.documents import ImportDocument, is_over
from millrace.client.errors import Problem
from millrace.client.file_body import PIECE_BYTES, Content, Progress
from millrace.client.file_digest import digest_of, refuse_other_start
from millrace.client.patience import LONGEST_POLL_SECONDS, PATIENCE_SECONDS, Patience, poll
from millrace.client.resource import ResourceClient, at, given
from millrace.client.upload import SMALL_FILE_BYTES, TUS, PendingUpload, Submission, nobody
from millrace.model.content import DIGEST_WANTED, digest_header

if TYPE_CHECKING:
    import httpx2

Imports = list[ImportDocument]


class ImportClient(ResourceClient):
    def send_file(self, path: Path, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The import's document once the platform has the whole file; `wait` returns when the import is over."""
        if path.stat().st_size > SMALL_FILE_BYTES:
            return self.begin_upload(path, submission).send(progress)
        body, query = path.read_bytes(), submission.query(path.name)
        document = Patience(submission.patience).repeat(lambda: self._post(body, submission, query))
        progress(len(body))
        return document

    def send_stream(self, stream: BinaryIO, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The same for what can be read only once; fails if the request breaks."""
        return self._post(_pieces(stream, progress), submission, submission.query())

    def _post(self, body: bytes | Iterator[bytes], submission: Submission, query: dict[str, str]) -> ImportDocument:
        headers = {"Idempotency-Key": submission.idempotency_key, "Content-Type": "application/octet-stream"}
        path = submission.route("imports")
        return self._ask(ImportDocument, "POST", path, content=body, params=query, headers=headers)

    def begin_upload(self, path: Content, submission: Submission) -> PendingUpload:
        """Has the import admitted; `send` of the upload sends the bytes."""
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
        headers = {**TUS, "Upload-Length": str(length), "Idempotency-Key": submission.idempotency_key}
        ask = partial(self._create, submission, path.name)
        try:
            response = ask(headers)
        except Problem as refused:
            if refused.code != DIGEST_WANTED:
                raise
            # The key was used before: only then the file is read once more.
            response = ask({**headers, "Repr-Digest": digest_header(digest_of(path))})
        import_id = response.headers["Location"].rstrip("/").rpartition("/")[2]
        offset = int(response.headers.get("Upload-Offset", "0"))
        refuse_other_start(path, import_id, offset, response.headers.get("Upload-Digest"))
        return PendingUpload(self._connection, import_id, path, length, offset, submission.patience)

    def _create(self, submission: Submission, name: str, headers: dict[str, str]) -> "httpx2.Response":
        route, query = submission.route("uploads"), submission.query(name)
        return Patience(submission.patience).repeat(
            lambda: self._connection.ok("POST", route, params=query, headers=headers)
        )

    def list(
        self, *, tenant: str | None = None, table: str | None = None, state: str | None = None, limit: int = 100
    ) -> Imports:
        params = given(tenant=tenant, table=table, state=state, limit=limit)
        return self._items(ImportDocument, at("imports"), params=params)

    def show(self, import_id: str, *, wait: float = 0, or_held: bool = False) -> ImportDocument:
        """The document now, or at most `wait` seconds from now when it is over (with `or_held`: or held)."""
        params = given(wait=min(wait, LONGEST_POLL_SECONDS), or_held=or_held or None) if wait else {}
        return self._ask(ImportDocument, "GET", at("imports", import_id), params=params)

    def wait(
        self, import_id: str, *, timeout: float | None = None, patience: float = PATIENCE_SECONDS
    ) -> ImportDocument:
        """The document once it is over or time is up; a platform away for up to `patience` seconds is no failure."""
        return poll(lambda left: self.show(import_id, wait=left), is_over, timeout, patience)

    def cancel(self, import_id: str) -> ImportDocument:
        """Rows that were already judged stay."""
        return self._ask(ImportDocument, "POST", at("imports", import_id, "cancel"))

    def release(self, import_id: str) -> ImportDocument:
        """Lets a held import end as if its rules had been kept."""
        return self._ask(ImportDocument, "POST", at("imports", import_id, "release"))


def _pieces(stream: BinaryIO, progress: Progress) -> Iterator[bytes]:
    sent = 0
    while piece := stream.read(PIECE_BYTES):
        yield piece
        sent += len(piece)
        progress(sent)
