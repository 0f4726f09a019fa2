"""Rejected rows that are replayed as they were, or discarded."""

import asyncio
from base64 import b64encode
from typing import Any

from millrace.api.admission import Admission
from millrace.api.jobs.rejected_rows import Choice, RejectedRows
from millrace.api.op_log import OpLog, raise_refusal
from millrace.api.sealing import Sealing
from millrace.model.errors import Clash, Missing
from millrace.model.formats import format_of_chunks
from millrace.model.names import new_id
from millrace.model.ops.rows import DiscardErrors, ReplayErrors


class Replays:
    """What is asked of the log. `ReplaySender` sends the rows when their turn has come."""

    def __init__(self, rejected: RejectedRows, op_log: OpLog, admission: Admission, sealing: Sealing) -> None:
        self._rejected = rejected
        self._op_log = op_log
        self._admission = admission
        self._sealing = sealing

    async def replay(self, origin_id: str, choice: Choice, span: str | None) -> dict[str, Any]:
        origin, definition = await asyncio.to_thread(self._rejected.find, origin_id)
        written = origin.written
        came_as = format_of_chunks(written.get("encoding"))
        if came_as is None or not came_as.is_replayable:
            raise Clash(
                f"The rows of {origin_id} came as {written.get('encoding') or 'an unfinished upload'}: "
                "they cannot be sent again as they were.",
                remedy="Amend them: send corrected rows.",
                code="only_amendable",
            )
        rows, chunks, doubtful = await asyncio.to_thread(self._rejected.replayable, origin, definition, choice)
        if not rows:
            raise Missing(
                f"No open rejected row of {origin_id} can be replayed.",
                remedy=f"{doubtful:,} of them have a key that occurs again in their chunk: amend them."
                if doubtful
                else "",
                code="nothing_to_replay",
            )
        op = ReplayErrors(
            origin.tenant,
            origin.table,
            id=new_id("imp"),
            of=origin.id,
            rows=b64encode(rows.serialize()).decode(),
            rows_count=len(rows),
            chunks=len(chunks),
            first_version=origin.first_version + chunks[0],
            span=span,
        )
        await self._admission.refuse_rows(op)
        async with self._sealing.asked_for(origin.tenant, op.id):
            answer = await self._op_log.submit(op)
            if not isinstance(answer, str):
                raise_refusal(answer)
        return {"import": op.id, "rows": len(rows), "only_amendable": doubtful, "waiting": isinstance(answer, str)}

    async def discard(self, origin_id: str, choice: Choice) -> dict[str, Any]:
        origin, _ = await asyncio.to_thread(self._rejected.find, origin_id)
        rows = await asyncio.to_thread(self._rejected.open_rows, origin, choice)
        wanted = b64encode(rows.serialize()).decode()
        op = DiscardErrors(origin.tenant, origin.table, id=new_id("imp"), of=origin.id, rows=wanted)
        return {"import": (await self._op_log.applied(op)).import_id, "rows": len(rows)}
