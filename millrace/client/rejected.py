"""Rejected rows of an import: read, counted by reason, replayed, amended, discarded."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from millrace.client.documents import ErrorPage, ImportDocument, RejectedRow
from millrace.client.file_options import AS_DECLARED, FileOptions
from millrace.client.resource import Document, Documents, ResourceClient, at, given


class RejectedRowClient(ResourceClient):
    def page(self, import_id: str, *, limit: int = 100, cursor: str | None = None) -> ErrorPage:
        return self._ask(ErrorPage, "GET", _errors(import_id), params=given(limit=limit, cursor=cursor or None))

    def list(self, import_id: str, *, limit: int | None = None, page: int = 1000) -> Iterator[RejectedRow]:
        """In file order, fetched a page at a time."""
        left, cursor = limit, None
        while left is None or left > 0:
            found = self.page(import_id, limit=page if left is None else min(page, left), cursor=cursor)
            yield from found["items"]
            left, cursor = None if left is None else left - len(found["items"]), found["next"]
            if cursor is None:
                return

    def export(self, import_id: str, format: str) -> Iterator[bytes]:
        """All of them as one CSV or JSON Lines file, in pieces."""
        yield from self._connection.pieces(_errors(import_id, "export"), {"format": format})

    def reasons(self, import_id: str) -> Documents:
        """How many were rejected for which reason."""
        return self._items(Document, _errors(import_id, "reasons"))

    def replay(
        self, import_id: str, *, rule: str | None = None, rows: Sequence[int] | None = None, span: str | None = None
    ) -> Document:
        """Judges them again by the table as it is now: all, those that one rule rejected, or those of these numbers."""
        return self._ask(
            Document, "POST", _errors(import_id, "replay"), json={"rule": rule, "rows": rows, "span": span}
        )

    def amend(
        self,
        import_id: str,
        path: Path,
        options: FileOptions = AS_DECLARED,
        *,
        rule: str | None = None,
        span: str | None = None,
    ) -> ImportDocument:
        """Imports a file of corrected rows in their place."""
        params = {**options.as_query(), **given(rule=rule, span=span, file_name=path.name)}
        return self._ask(ImportDocument, "POST", _errors(import_id, "amend"), params=params, content=path.read_bytes())

    def discard(self, import_id: str, *, rule: str | None = None, rows: Sequence[int] | None = None) -> Document:
        """Gives them up."""
        return self._ask(Document, "POST", _errors(import_id, "discard"), json={"rule": rule, "rows": rows})


def _errors(import_id: str, *verb: str) -> str:
    return at("imports", import_id, "errors", *verb)
