"""Rejected rows of one import, page by page: a cursor in, rows with their reasons and the next cursor out.

A cursor is the place of the last row on a page. So each row that existed when the first page was read is on exactly one page,
also while rows arrive or files are compacted. Refuses invalid cursors."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from millrace.lake.store import Store
from millrace.model.errors import Invalid
from millrace.read.rejected import BEGINNING, RowPlace, rejected_rows
from millrace.read.row_states import ALL_OPEN, RowStates, numbers_of

# A page ends early when its rows are large.
MOST_PAGE_BYTES = 8 << 20
REASON_BYTES = 200

_CURSOR = re.compile(r"(\d{1,10})\.(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """`items` are {"row", "line", "raw", "reasons", "state"}. `next` is the cursor of the next page; None if there is none
    yet."""

    items: list[dict[str, Any]]
    next: str | None


def page(errors: Store, import_id: str, cursor: str | None, limit: int, states: RowStates = ALL_OPEN) -> ErrorPage:
    """Up to `limit` rejected rows behind the cursor, in the order of the user's file."""
    after = BEGINNING if not cursor else _place(cursor)
    items: list[dict[str, Any]] = []
    size = 0
    for rejected in rejected_rows(errors, import_id, after):
        wanted = states.only_wanted(rejected.rows).slice(0, limit - len(items) + 1)
        for row, state in zip(wanted.to_pylist(), states.of(numbers_of(wanted)), strict=True):
            size += len(row["raw"]) + REASON_BYTES * len(row["reasons"])
            if len(items) == limit or (items and size > MOST_PAGE_BYTES):
                return ErrorPage(items, _cursor(after))
            after = RowPlace(rejected.chunk, row["row"])
            items.append({**shown(row), "state": state})
    return ErrorPage(items, None)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A stored row for people. Bytes that are not UTF-8 become U+FFFD. In the store, line 0 means no line."""
    seen = {**row, "raw": row["raw"].decode("utf-8", "replace")}
    return {**seen, "line": row["line"] or None} if "line" in row else seen


def _cursor(place: RowPlace) -> str:
    return base64.urlsafe_b64encode(f"{place.chunk}.{place.row}".encode()).decode().rstrip("=")


def _place(cursor: str) -> RowPlace:
    try:
        found = _CURSOR.fullmatch(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode())
    except (binascii.Error, ValueError):
        found = None
    if found is None:
        raise Invalid(
            f"{cursor[:40]!r} is no cursor.", remedy='Send back what a page gave as "next", or none.', code="bad_cursor"
        )
    return RowPlace(int(found[1]), int(found[2]))
