"""Imports: files sent, followed, cancelled and released."""

from pathlib import Path
from typing import BinaryIO

from millrace.client.documents import ImportDocument, is_over
from millrace.client.file_body import Content, Progress
from millrace.client.patience import LONGEST_POLL_SECONDS, PATIENCE_SECONDS, poll
from millrace.client.resource import ResourceClient, at, given
from millrace.client.upload import PendingUpload, Submission, begin_upload, nobody, upload_file, upload_stream

Imports = list[ImportDocument]


class ImportClient(ResourceClient):
    def send_file(self, path: Path, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The import's document once the platform has the whole file; `wait` returns when the import is over."""
        return upload_file(self._connection, path, submission, progress)

    def send_stream(self, stream: BinaryIO, submission: Submission, progress: Progress = nobody) -> ImportDocument:
        """The same for what can be read only once."""
        return upload_stream(self._connection, stream, submission, progress)

    def begin_upload(self, path: Content, submission: Submission) -> PendingUpload:
        """Has the import admitted; `send` of the upload sends the bytes."""
        return begin_upload(self._connection, path, submission)

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
