"""Gathers rows of many connections into appends: rows in, one batch per flush out; each source is told the outcome.

Rows with the same key (tenant, table, span) travel together. The first rows of a quiet key wait a few milliseconds for more,
and longer while many of its appends have not ended: load makes batches larger, not more numerous. A key without rows under
way costs nothing: no task, no timer, no entry. What waits is bounded per tenant and in total: `add` waits for room.

A source has at most one flush under way. So a refused one can be sent again, and `OpenSender` tells exactly what is there."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from millrace.model.errors import MillraceError
from millrace.model.frames import OUT_OF_STEP
from millrace.observe import observe
from millrace.upload.batch import AppendKey, Batch, BatchPart, Placement, Source
from millrace.upload.room import Room


@dataclass(frozen=True, slots=True)
class GatherLimits:
    linger_seconds: float = 0.004
    # For each append under way, from one flush to the next.
    pace_seconds: float = 0.004
    longest_pace_seconds: float = 0.1
    flush_rows: int = 8_000
    flush_bytes: int = 512 << 10
    flushes_per_key: int = 4
    tenant_bytes: int = 16 << 20
    total_bytes: int = 64 << 20


Append = Callable[[AppendKey, Batch], Awaitable[Placement]]


@dataclass(slots=True)
class _Queue:
    """What one source has waiting."""

    pieces: deque[tuple[int, int, bytes]] = field(default_factory=deque)
    rows: int = 0
    size: int = 0
    is_sending: bool = False
    is_gone: bool = False


@dataclass(slots=True)
class _Gathered:
    """The rows of one key that wait. `rows` and `size` count only what the next flush may take."""

    queues: dict[Source, _Queue] = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    flushes: int = 0
    unended: int = 0
    flushed_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Gatherer:
    """Used from one event loop. `append` puts a batch into the log and returns when it is applied; its owner calls `ended`
    once when the append has ended."""

    def __init__(self, append: Append, limits: GatherLimits | None = None) -> None:
        self._append = append
        self._limits = limits or GatherLimits()
        self._room = Room(self._limits.tenant_bytes, self._limits.total_bytes)
        self._gathered: dict[AppendKey, _Gathered] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, key: AppendKey, source: Source, first_seq: int, rows: int, body: bytes) -> None:
        """Takes rows as soon as there is room for them. They follow what the source added before."""
        await self._room.take(key.tenant, len(body))
        gathered = self._gathered.setdefault(key, _Gathered())
        queue = gathered.queues.setdefault(source, _Queue())
        queue.pieces.append((first_seq, rows, body))
        queue.rows += rows
        queue.size += len(body)
        if not queue.is_sending:
            gathered.rows += rows
            gathered.size += len(body)
        self._go_on(key, gathered, self._limits.linger_seconds)

    def ended(self, key: AppendKey) -> None:
        """One of the key's appends has ended."""
        gathered = self._gathered.get(key)
        if gathered is not None and gathered.unended:
            gathered.unended -= 1
            self._tidy(key, gathered)

    def forget(self, key: AppendKey, source: Source) -> None:
        """Drops what the source has waiting; what is under way goes on, but is not tried again."""
        gathered = self._gathered.get(key)
        queue = gathered.queues.get(source) if gathered else None
        if gathered is None or queue is None:
            return
        queue.is_gone = True
        self._drop(key, gathered, queue)
        if not queue.is_sending:
            del gathered.queues[source]
        self._tidy(key, gathered)

    @property
    def keys(self) -> int:
        """How many keys have rows under way."""
        return len(self._gathered)

    def _go_on(self, key: AppendKey, gathered: _Gathered, linger: float) -> None:
        """Flushes what is full, and schedules the flush of the rest."""
        limits, loop = self._limits, asyncio.get_running_loop()
        while gathered.rows and gathered.flushes < limits.flushes_per_key:
            if gathered.rows < limits.flush_rows and gathered.size < limits.flush_bytes:
                if gathered.timer is None:
                    pace = min(gathered.unended * limits.pace_seconds, limits.longest_pace_seconds)
                    due = max(loop.time() + linger, gathered.flushed_at + pace)
                    gathered.timer = loop.call_at(due, self._on_time, key, gathered)
                return
            self._flush(key, gathered)

    def _on_time(self, key: AppendKey, gathered: _Gathered) -> None:
        gathered.timer = None
        if gathered.rows and gathered.flushes < self._limits.flushes_per_key:
            self._flush(key, gathered)
            self._go_on(key, gathered, 0)

    def _flush(self, key: AppendKey, gathered: _Gathered) -> None:
        if gathered.timer is not None:
            gathered.timer.cancel()
            gathered.timer = None
        batch = self._take(gathered)
        gathered.flushes += 1
        loop = asyncio.get_running_loop()
        gathered.flushed_at = loop.time()
        task = loop.create_task(self._send(key, gathered, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, gathered: _Gathered) -> Batch:
        """Rows of the sources that have waited longest, up to the limits; at least one piece."""
        parts: list[BatchPart] = []
        rows = size = 0
        for source, queue in list(gathered.queues.items()):
            if queue.is_sending or not queue.pieces:
                continue
            if rows >= self._limits.flush_rows or size >= self._limits.flush_bytes:
                break
            gathered.rows -= queue.rows
            gathered.size -= queue.size
            part = self._take_part(source, queue, self._limits.flush_rows - rows, self._limits.flush_bytes - size)
            rows += part.rows
            size += len(part.body)
            queue.is_sending = True
            parts.append(part)
            # A source with more rows waits behind the others.
            gathered.queues[source] = gathered.queues.pop(source)
        return Batch.of(parts)

    @staticmethod
    def _take_part(source: Source, queue: _Queue, most_rows: int, most_bytes: int) -> BatchPart:
        first_seq = queue.pieces[0][0]
        taken: list[bytes] = []
        rows = size = 0
        while queue.pieces and rows < most_rows and size < most_bytes:
            _, count, body = queue.pieces.popleft()
            taken.append(body)
            rows += count
            size += len(body)
        queue.rows -= rows
        queue.size -= size
        return BatchPart(source, first_seq, rows, taken[0] if len(taken) == 1 else b"".join(taken))

    async def _send(self, key: AppendKey, gathered: _Gathered, batch: Batch) -> None:
        await self._deliver(key, gathered, batch)
        gathered.flushes -= 1
        for part in batch.parts:
            self._room.give(key.tenant, len(part.body))
            self._free(gathered, part.source)
        self._go_on(key, gathered, 0)
        self._tidy(key, gathered)

    async def _deliver(self, key: AppendKey, gathered: _Gathered, batch: Batch) -> None:
        gathered.unended += 1
        try:
            placement = await self._append(key, batch)
        except MillraceError as error:
            gathered.unended -= 1
            alone = batch.by_source()
            if error.code == OUT_OF_STEP and len(alone) > 1:
                here = [one for one in alone if not all(gathered.queues[p.source].is_gone for p in one.parts)]
                await asyncio.gather(*(self._deliver(key, gathered, one) for one in here))
            else:
                self._fail(key, gathered, batch, error)
        except Exception as error:
            gathered.unended -= 1
            observe("trouble", kind="append", error=f"{type(error).__name__}: {error}"[:1000])
            self._fail(key, gathered, batch, MillraceError("The rows could not be sent.", code="internal"))
        else:
            for part in batch.parts:
                part.source.placed(part, placement)

    def _fail(self, key: AppendKey, gathered: _Gathered, batch: Batch, error: MillraceError) -> None:
        for part in batch.parts:
            # What follows lost rows of a sender would leave a gap.
            self._drop(key, gathered, gathered.queues[part.source])
            part.source.failed(error)

    def _drop(self, key: AppendKey, gathered: _Gathered, queue: _Queue) -> None:
        if not queue.is_sending:
            gathered.rows -= queue.rows
            gathered.size -= queue.size
        self._room.give(key.tenant, queue.size)
        queue.pieces.clear()
        queue.rows = queue.size = 0

    @staticmethod
    def _free(gathered: _Gathered, source: Source) -> None:
        queue = gathered.queues[source]
        queue.is_sending = False
        gathered.rows += queue.rows
        gathered.size += queue.size
        if not queue.pieces:
            del gathered.queues[source]

    def _tidy(self, key: AppendKey, gathered: _Gathered) -> None:
        if gathered.queues or gathered.flushes or gathered.unended:
            return
        if gathered.timer is not None:
            gathered.timer.cancel()
        if self._gathered.get(key) is gathered:
            del self._gathered[key]
