"""Batches of rows in, appends in the table log out; and where a sender stands there."""

import asyncio
from base64 import b64encode
from collections.abc import Callable

from millrace.api.admission import Admission
from millrace.api.op_log import OpLog
from millrace.api.rows.endings import Endings
from millrace.api.sealing import Sealing
from millrace.exchange.log_keys import LOG_PART
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.rows import Append, OpenSender, SenderOpened
from millrace.seal.cipher import Seal
from millrace.store.engine import ControlStore
from millrace.upload.batch import AppendKey, Batch, Placement
from millrace.wire.envelope import checksum, compress

MOST_UNDER_WAY = 50_000
# An op that is in the log gets an outcome, even if its turn on an exclusive table takes long.
HOWEVER_LONG = None
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
        self._under_way: dict[str, AppendKey] = {}
        self._on_end = on_end
        self.endings = Endings(store)

    async def append(self, append_key: AppendKey, batch: Batch) -> Placement:
        """Returns when the rows are in the log and have their version; raises what was refused."""
        import_id = new_id("imp")
        seal = await self._sealing.seal_of_append(append_key.tenant, append_key.table, import_id)
        log_seal = None
        if seal is None:
            log_seal = await self._sealing.log_seal(append_key.tenant, append_key.table, import_id)
        op = _append(append_key, batch, seal, log_seal, import_id)
        await self._admission.refuse_rows(op)
        self._note_begin(import_id, append_key)
        if batch.wants_end:
            self.endings.expect(import_id)
        try:
            result = await self._op_log.applied(op, wait=HOWEVER_LONG)
        except BaseException:
            self._under_way.pop(import_id, None)
            raise
        finally:
            # In the next turn of the loop: sources are told the place of their rows first.
            self._loop.call_soon(self.endings.forget_unheard, import_id)
        return Placement(result.import_id, result.version)

    def _note_begin(self, import_id: str, append_key: AppendKey) -> None:
        if len(self._under_way) < MOST_UNDER_WAY:
            self._under_way[import_id] = append_key
        else:
            # Nothing has ended for long. The memory for appends under way is bounded.
            self._loop.call_soon(self._on_end, append_key)

    async def open_sender(self, append_key: AppendKey, sender: str) -> SenderOpened:
        """Where the sender stands in the log. Every append asked for before is counted."""
        return await self._op_log.applied(
            OpenSender(append_key.tenant, append_key.table, sender=sender), wait=HOWEVER_LONG
        )

    def on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        over = [one.result.over for one in applied if one.result.over is not None]
        if over:
            self._loop.call_soon_threadsafe(self._note_ends, over)

    def _note_ends(self, over: list[str]) -> None:
        self.endings.heard(over)
        for import_id in over:
            append_key = self._under_way.pop(import_id, None)
            if append_key is not None:
                self._on_end(append_key)


def _append(append_key: AppendKey, batch: Batch, seal: Seal | None, log_seal: Seal | None, import_id: str) -> Append:
    rows = batch.body
    payload = compress(rows)
    if seal is not None:
        payload = seal.close(payload, str(_ONLY_CHUNK))
    logged = payload if log_seal is None else log_seal.close(payload, LOG_PART)
    return Append(
        append_key.tenant,
        append_key.table,
        id=import_id,
        rows=batch.rows,
        plain_bytes=len(rows),
        checksum=checksum(payload),
        payload=b64encode(logged).decode(),
        span=append_key.span,
        senders=batch.senders,
        digests=batch.digests,
        key=None if seal is None else seal.key,
        log_key=None if log_seal is None else log_seal.key,
    )
