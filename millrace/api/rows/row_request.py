"""The rows of one request. Gathered with those of others; the answer comes when the log has them or they have ended."""

import asyncio
from dataclasses import replace
from hashlib import sha256
from typing import Any

from millrace.api.rows.append_result import counts, rejected_pages
from millrace.api.rows.endings import Ended
from millrace.api.rows.senders import Senders
from millrace.model.content import OTHER_CONTENT
from millrace.model.errors import Clash, Invalid, MillraceError, Unavailable
from millrace.model.frames import OUT_OF_STEP, count_rows
from millrace.upload.batch import AppendKey, BatchPart, Placement

ANSWER_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 30.0
MOST_LISTED = 1000


async def post_rows(
    senders: Senders, append_key: AppendKey, rows: bytes, key: str | None, wait: float
) -> dict[str, Any]:
    """Where the rows went; with `wait`, also what became of them if they end in time."""
    if not rows:
        raise Invalid("There are no rows in the body.", remedy="Send JSON Lines, or a JSON array of objects.")
    await senders.pace(append_key.tenant, len(rows))
    digest = None if key is None else sha256(rows).hexdigest()
    request = _RowRequest(senders, key, digest, wants_end=wait > 0)
    if key is None:
        return await request.send(append_key, rows, wait)
    with senders.counted(append_key, key):
        return await _once(request, senders, append_key, key, rows, wait)


async def _once(
    request: "_RowRequest", senders: Senders, append_key: AppendKey, key: str, rows: bytes, wait: float
) -> dict[str, Any]:
    """The same rows that were sent before with the key are not sent again; others are refused."""
    async with senders.exclusive(append_key, key):
        try:
            return await request.send(append_key, rows, wait)
        except MillraceError as error:
            if error.code != OUT_OF_STEP:
                raise
        opened = await senders.appends.open_sender(append_key, key)
        # A digest tells all. Rows of earlier releases have none, but they were counted.
        if opened.digest not in (None, request.digest) or opened.seq != count_rows(rows):
            raise _other_rows(opened.seq, count_rows(rows))
        return {"rows": opened.seq, "repeated": True}


def _other_rows(before: int, now: int) -> Clash:
    how = f"{before:,} rows then, {now:,} now" if before != now else "their content differs"
    return Clash(
        f"The idempotency key was used for other rows of this table: {how}.",
        remedy="Use a new key for other rows. The same rows with the same key are stored once.",
        code=OTHER_CONTENT,
    )


class _RowRequest:
    """The request as a source of rows. A key makes it a sender whose rows begin at 1: sent again, they are out of step."""

    def __init__(self, senders: Senders, key: str | None, digest: str | None, *, wants_end: bool) -> None:
        self.sender = key
        self.digest = digest
        self.wants_end = wants_end
        self._senders = senders
        self._place: asyncio.Future[tuple[BatchPart, Placement]] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[Ended] | None = None

    def placed(self, part: BatchPart, placement: Placement) -> None:
        if self._place.done():
            return
        if self.wants_end:
            self._ended = self._senders.appends.endings.ended(placement.import_id)
        self._place.set_result((replace(part, body=b""), placement))

    def failed(self, error: MillraceError) -> None:
        if not self._place.done():
            self._place.set_exception(error)

    async def send(self, append_key: AppendKey, rows: bytes, wait: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._senders.gatherer.add(append_key, self, 1, count_rows(rows), rows)
                part, placement = await self._place
        except TimeoutError:
            raise Unavailable(
                "The rows could not be placed in time; they may still be.",
                remedy="Send them again with the same Idempotency-Key, or wait until the table's turn comes.",
            ) from None
        finally:
            self._senders.gatherer.forget(append_key, self)
        answer = {"import": placement.import_id, "version": placement.version, "rows": part.rows}
        if self._ended is None:
            return answer
        await asyncio.wait([self._ended], timeout=min(wait, LONGEST_WAIT_SECONDS))
        if not self._ended.done():
            self._ended.cancel()
            return answer
        return {**answer, **await self._judged(append_key, part, placement.import_id, self._ended.result())}

    async def _judged(self, append_key: AppendKey, part: BatchPart, import_id: str, ended: Ended) -> dict[str, Any]:
        listed: list[dict[str, Any]] = []
        if ended.counts.rejected:
            async for page in rejected_pages(self._senders.errors(append_key), import_id, part):
                listed += page
        for row in listed:
            row["row"] -= part.first_row - 1
        counted = counts(part, ended, len(listed))
        return {"state": ended.state, **counted, "errors": listed[:MOST_LISTED], "error": ended.error}
