"""Batches of streamed rows in, appends in the table log out; and where a stream stands there."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from millrace.api.platform import Platform, raise_refusal
from millrace.api.rows.endings import Endings
from millrace.model import ops
from millrace.model.imports import TERMINAL
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.seal.cipher import Seal
from millrace.upload.batch import AppendKey, Batch, Placement
from millrace.wire.envelope import checksum, compress

MOST_UNDER_WAY = 50_000
_ONLY_CHUNK = 0


class Appends:
    """Used from one event loop, but for `_on_applied`."""

    def __init__(self, platform: Platform, on_end: Callable[[AppendKey], None]) -> None:
        self._platform = platform
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Applied]] = {}
        self._under_way: dict[str, AppendKey] = {}
        self._on_end = on_end
        self.endings = Endings(platform.store)
        platform.listen(self._on_applied)

    async def append(self, lane: AppendKey, batch: Batch) -> Placement:
        """Returns when the rows are in the log and have their version; raises what was refused."""
        op_id = new_id("imp")
        body = await self._body(lane, batch, op_id)
        self._note_begin(op_id, lane)
        if batch.wants_end:
            self.endings.expect(op_id)
        try:
            result = await self._outcome(ops.APPEND, lane, body, op_id)
        except BaseException:
            self._under_way.pop(op_id, None)
            raise
        finally:
            # In the next turn of the loop: those who asked for the rows hear of their place first.
            self._loop.call_soon(self.endings.forget_unheard, op_id)
        return Placement(result["import"], result["version"])

    async def _body(self, lane: AppendKey, batch: Batch, import_id: str) -> dict[str, Any]:
        seal = await self._platform.sealing.seal_of_append(lane.tenant, lane.table, import_id)
        return _append_body(lane, batch, seal)

    def _note_begin(self, import_id: str, lane: AppendKey) -> None:
        if len(self._under_way) < MOST_UNDER_WAY:
            self._under_way[import_id] = lane
        else:
            # Nothing has ended for long: better to know less than to remember ever more.
            self._loop.call_soon(self._on_end, lane)

    async def open_stream(self, lane: AppendKey, stream: str) -> dict[str, Any]:
        """What the log holds of the stream: `seq` is the number of its last row. Every append asked for before is counted."""
        return await self._outcome(ops.OPEN_STREAM, lane, {"stream": stream}, new_id("op"))

    async def _outcome(self, kind: str, lane: AppendKey, body: Mapping[str, Any], op_id: str) -> dict[str, Any]:
        """Patient: an op that is in the log and waits, for its turn or for the controller, will have an outcome."""
        answer = self._answers[op_id] = self._loop.create_future()
        try:
            outcome = await self._platform.submit(kind, lane.tenant, lane.table, body, op_id)
            if isinstance(outcome, str) or outcome.result.get("waiting"):
                outcome = await answer
            return raise_refusal(outcome).result
        finally:
            del self._answers[op_id]

    def _on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        self.endings.on_applied(applied)
        over = [a.result["import"] for a in applied if a.result.get("state") in TERMINAL and "import" in a.result]
        if any(import_id in self._under_way for import_id in over):
            self._loop.call_soon_threadsafe(self._count_ends, over)
        final = [one for one in applied if one.op_id in self._answers and not one.result.get("waiting")]
        if final:
            self._loop.call_soon_threadsafe(self._answer, final)

    def _count_ends(self, over: list[str]) -> None:
        for import_id in over:
            lane = self._under_way.pop(import_id, None)
            if lane is not None:
                self._on_end(lane)

    def _answer(self, final: list[Applied]) -> None:
        for one in final:
            answer = self._answers.get(one.op_id)
            if answer is not None and not answer.done():
                answer.set_result(one)


def _append_body(lane: AppendKey, batch: Batch, seal: Seal | None) -> dict[str, Any]:
    rows = batch.body
    payload = compress(rows)
    if seal is not None:
        payload = seal.close(payload, str(_ONLY_CHUNK))
    return {
        "rows": batch.rows,
        "plain_bytes": len(rows),
        "checksum": checksum(payload),
        "payload": b64encode(payload).decode(),
        "span": lane.span,
        "streams": batch.streams,
        "key": None if seal is None else seal.key,
    }
