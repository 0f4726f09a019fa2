"""Rejected rows of an import: read, counted by reason, replayed, amended, discarded."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.client.documents import AmendmentDocument, ErrorPage, RejectedRow
from millrace.client.file_options import AS_DECLARED, FileOptions
from millrace.client.resource import Document, Documents, ResourceClient, at, given


class RejectedRowClient(ResourceClient):
    """`state` chooses rows that are open, amended, replayed or discarded."""

    def page(
        self, import_id: str, *, limit: int = 100, cursor: str | None = None, state: str | None = None
    ) -> ErrorPage:
        params = given(limit=limit, cursor=cursor or None, state=state)
        return self._ask(ErrorPage, "GET", _errors(import_id), params=params)

    def list(
        self, import_id: str, *, limit: int | None = None, page: int = 1000, state: str | None = None
    ) -> Iterator[RejectedRow]:
        """In file order, fetched a page at a time."""
        left, cursor = limit, None
        while left is None or left > 0:
            most = page if left is None else min(page, left)
            found = self.page(import_id, limit=most, cursor=cursor, state=state)
            yield from found["items"]
            left, cursor = None if left is None else left - len(found["items"]), found["next"]
            if cursor is None:
                return

    def export(self, import_id: str, format: str, *, state: str | None = None) -> Iterator[bytes]:
        """All of them as one file, in pieces: a report as `csv` or `jsonl`, or as `file` the original rows with their numbers
        in the column `_row`, written as they came: correct them and `amend`."""
        yield from self._connection.pieces(_errors(import_id, "export"), given(format=format, state=state))

    def reasons(self, import_id: str, *, state: str | None = None) -> Documents:
        """How many were rejected for which reason."""
        return self._items(Document, _errors(import_id, "reasons"), params=given(state=state))

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
        add: bool = False,
        idempotency_key: str | None = None,
    ) -> AmendmentDocument:
        """Imports a file of corrected rows in place of the rejected rows that they replace: by number in the column `_row`,
        else by primary key. With `add`, rows that replace none are imported as well."""
        more = given(rule=rule, span=span, file_name=path.name, add=add or None)
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        params, body = {**options.as_query(), **more}, path.read_bytes()
        return self._ask(
            AmendmentDocument, "POST", _errors(import_id, "amend"), params=params, content=body, headers=headers
        )

    def amend_rows(
        self, import_id: str, values: Mapping[int, Mapping[str, Any]], *, span: str | None = None
    ) -> AmendmentDocument:
        """Repairs some rejected rows, by their numbers: the given values replace those of the row."""
        rows = [{"row": row, "values": dict(given_values)} for row, given_values in values.items()]
        return self._ask(AmendmentDocument, "POST", _errors(import_id, "amend-rows"), json={"rows": rows, "span": span})

    def discard(self, import_id: str, *, rule: str | None = None, rows: Sequence[int] | None = None) -> Document:
        """Gives them up."""
        return self._ask(Document, "POST", _errors(import_id, "discard"), json={"rule": rule, "rows": rows})


def _errors(import_id: str, *verb: str) -> str:
    return at("imports", import_id, "errors", *verb)
