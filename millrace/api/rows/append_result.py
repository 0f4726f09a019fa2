"""What became of one source's rows in an append: counts, and its rejected rows a page at a time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from millrace.api.rows.endings import Ended
from millrace.lake.store import Store
from millrace.read.error_pages import shown
from millrace.read.rejected import RowPlace, rejected_rows
from millrace.upload.batch import BatchPart

PAGE_ROWS = 200
PAGE_BYTES = 256 << 10
_CHUNK = 0

Row = dict[str, Any]


async def rejected_pages(errors: Store, import_id: str, part: BatchPart) -> AsyncIterator[list[Row]]:
    """Rows as {"row", "raw", "reasons"}, in order; `row` counts in the append."""
    pages = _pages(errors, import_id, part)
    while page := await asyncio.to_thread(next, pages, None):
        yield page


def _pages(errors: Store, import_id: str, part: BatchPart) -> Iterator[list[Row]]:
    page: list[Row] = []
    size = 0
    before = RowPlace(_CHUNK, part.first_row - 1)
    for rejected in rejected_rows(errors, import_id, before):
        for row in rejected.rows.to_pylist():
            if row["row"] > part.last_row:
                break
            size += len(row["raw"])
            del row["line"]
            page.append(shown(row))
            if len(page) >= PAGE_ROWS or size >= PAGE_BYTES:
                yield page
                page, size = [], 0
    if page:
        yield page


def counts(part: BatchPart, ended: Ended, listed: int) -> dict[str, int]:
    """Of one source's rows. `listed` is how many of them the error store names: a failed append is one entry there."""
    if ended.counts.ignored:
        return {"accepted": 0, "rejected": 0, "ignored": part.rows}
    rejected = part.rows if not ended.counts.accepted else listed
    return {"accepted": part.rows - rejected, "rejected": rejected, "ignored": 0}
