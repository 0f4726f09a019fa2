"""Batches of rows in, appends in the table log out; and where a sender stands there."""

import asyncio
from base64 import b64encode
from collections.abc import Callable

from millrace.api.admission import Admission
from millrace.api.op_log import OpLog, raise_refusal
from millrace.api.rows.endings import Endings
from millrace.api.sealing import Sealing
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.results import Result
from millrace.model.ops.rows import Append, OpenSender, RowsAppended, SenderOpened
from millrace.seal.cipher import Seal
from millrace.store.engine import ControlStore
from millrace.upload.batch import AppendKey, Batch, Placement
from millrace.wire.envelope import checksum, compress

MOST_UNDER_WAY = 50_000
_ONLY_CHUNK = 0


class Appends:
    """Used from one event loop, except `on_applied`."""

    def __init__(
        self,
        store: ControlStore,
        op_log: OpLog,
        admission: Admission,
        sealing: Sealing,
        on_end: Callable[[AppendKey], None],
    ) -> None:
        self._op_log = op_log
        self._admission = admission
        self._sealing = sealing
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[Applied]] = {}
        self._under_way: dict[str, AppendKey] = {}
        self._on_end = on_end
        self.endings = Endings(store)

    async def append(self, append_key: AppendKey, batch: Batch) -> Placement:
        """Returns when the rows are in the log and have their version; raises what was refused."""
        import_id = new_id("imp")
        seal = await self._sealing.seal_of_append(append_key.tenant, append_key.table, import_id)
        op = _append(append_key, batch, seal, import_id)
        await self._admission.refuse_rows(op)
        self._note_begin(import_id, append_key)
        if batch.wants_end:
            self.endings.expect(import_id)
        try:
            result = await self._outcome(op)
        except BaseException:
            self._under_way.pop(import_id, None)
            raise
        finally:
            # In the next turn of the loop: sources are told the place of their rows first.
            self._loop.call_soon(self.endings.forget_unheard, import_id)
        assert isinstance(result, RowsAppended)
        return Placement(result.import_id, result.version)

    def _note_begin(self, import_id: str, append_key: AppendKey) -> None:
        if len(self._under_way) < MOST_UNDER_WAY:
            self._under_way[import_id] = append_key
        else:
            # Nothing has ended for long. The memory for appends under way is bounded.
            self._loop.call_soon(self._on_end, append_key)

    async def open_sender(self, append_key: AppendKey, sender: str) -> SenderOpened:
        """Where the sender stands in the log. Every append asked for before is counted."""
        result = await self._outcome(OpenSender(append_key.tenant, append_key.table, id=new_id("op"), sender=sender))
        assert isinstance(result, SenderOpened)
        return result

    async def _outcome(self, op: Append | OpenSender) -> Result:
        """Waits without limit: an op that is in the log gets an outcome, however long its turn takes."""
        answer = self._answers[op.id] = self._loop.create_future()
        try:
            outcome = await self._op_log.submit(op)
            if isinstance(outcome, str) or outcome.is_waiting:
                outcome = await answer
            return raise_refusal(outcome).result
        finally:
            del self._answers[op.id]

    def on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        self.endings.on_applied(applied)
        over = [one.result.over for one in applied if one.result.over is not None]
        if any(import_id in self._under_way for import_id in over):
            self._loop.call_soon_threadsafe(self._count_ends, over)
        final = [one for one in applied if one.op_id in self._answers and not one.is_waiting]
        if final:
            self._loop.call_soon_threadsafe(self._answer, final)

    def _count_ends(self, over: list[str]) -> None:
        for import_id in over:
            append_key = self._under_way.pop(import_id, None)
            if append_key is not None:
                self._on_end(append_key)

    def _answer(self, final: list[Applied]) -> None:
        for one in final:
            answer = self._answers.get(one.op_id)
            if answer is not None and not answer.done():
                answer.set_result(one)


def _append(append_key: AppendKey, batch: Batch, seal: Seal | None, import_id: str) -> Append:
    rows = batch.body
    payload = compress(rows)
    if seal is not None:
        payload = seal.close(payload, str(_ONLY_CHUNK))
    return Append(
        append_key.tenant,
        append_key.table,
        id=import_id,
        rows=batch.rows,
        plain_bytes=len(rows),
        checksum=checksum(payload),
        payload=b64encode(payload).decode(),
        span=append_key.span,
        senders=batch.senders,
        key=None if seal is None else seal.key,
    )
