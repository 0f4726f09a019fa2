"""The table log as this server uses it: ops in, what became of them out."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

from millrace.api.bookkeeping import surely
from millrace.exchange.partitions import OpPartitions
from millrace.failpoint import reach
from millrace.model.errors import Unavailable
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.base import Op
from millrace.model.ops.results import Result, Waiting
from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import ControlStore, insert_new
from millrace.wire.client import Appended
from millrace.wire.envelope import pack
from millrace.wire.signing import OpSigner
from millrace.wire.topics import TABLE_OPS

SOON_SECONDS = 0.25
ANSWER_SECONDS = 10.0
# Shorter than any client waits for an answer.
TURN_SECONDS = 15.0

R = TypeVar("R", bound=Result)
Listener = Callable[[list[Applied]], None]


class OpLog:
    def __init__(self, store: ControlStore, appender: OpSigner, partitions: OpPartitions) -> None:
        self._store = store
        self._appender = appender
        self._partitions = partitions
        self._waiting: dict[str, Future[Applied]] = {}
        self._in_line: dict[str, str] = {}
        self._listeners: list[Listener] = []
        # One thread, so that ops that could not be appended at once keep their order.
        self._behind = ThreadPoolExecutor(1, "op-append")
        self._not_yet: set[Future[Future[Appended]]] = set()

    def listen(self, listener: Listener) -> None:
        """Calls the listener, from the controller's thread, with ops that have just been applied."""
        self._listeners.append(listener)

    def append(self, op: Op[Any]) -> "Future[Appended]":
        """Puts an op into the log. Whoever needs its outcome calls `submit` or `applied` instead. It may wait for the broker:
        not for the event loop."""
        op = _with_id(op)
        return self._appender.append(TABLE_OPS, op.tenant.encode(), pack(op.to_dict()), self._partitions.of(op.tenant))

    async def _append_in_turn(self, op: Op[Any]) -> "Future[Appended]":
        """The same for the event loop: in a thread if it would wait. Ops are appended in the order in which they come."""
        if not self._partitions.knows(op.tenant):
            await surely(self._partitions.of, op.tenant)
        if not self._not_yet and self._partitions.knows(op.tenant):
            record = pack(op.to_dict())
            appended = self._appender.try_append(TABLE_OPS, op.tenant.encode(), record, self._partitions.of(op.tenant))
            if appended is not None:
                return appended
        later = self._behind.submit(self.append, op)
        self._not_yet.add(later)
        later.add_done_callback(self._not_yet.discard)
        return await asyncio.wrap_future(later)

    async def submit(
        self, op: Op[Any], *, until_its_turn: bool = False, wait: float | None = ANSWER_SECONDS
    ) -> Applied | str:
        """Appends an op and returns its outcome, or its id if nobody has evaluated it in time. None waits without limit.

        Raises nothing that is Refused: only the controller refuses an op.

        With `until_its_turn` an op that waits for its turn on an exclusive table is waited for as well."""
        op = _with_id(op)
        waiting: Future[Applied] = Future()
        self._waiting[op.id] = waiting
        try:
            await asyncio.wrap_future(await self._append_in_turn(op))
            reach("after_op_append")
            answer = asyncio.wrap_future(waiting)
            done, _ = await asyncio.wait([answer], timeout=SOON_SECONDS)
            if not done and op.id not in self._in_line:
                # Only an op that nobody has evaluated yet needs to be known as requested.
                await surely(self._note_requested, op)
            done, _ = await asyncio.wait([answer], timeout=wait)
            if not done and op.id in self._in_line and until_its_turn:
                done, _ = await asyncio.wait([answer], timeout=TURN_SECONDS)
                if not done:
                    raise Unavailable(
                        f"{op.tenant}/{op.subject} is exclusive, and the op still waits its turn.",
                        remedy="Ask again with the same idempotency key to keep the place in line.",
                        code="in_line",
                    )
            return answer.result() if done else op.id
        finally:
            self._waiting.pop(op.id, None)
            self._in_line.pop(op.id, None)

    async def applied(self, op: Op[R], *, wait: float | None = ANSWER_SECONDS) -> R:
        """The same for callers that can do nothing without the result. Raises what the controller refused."""
        outcome = await self.submit(op, until_its_turn=True, wait=wait)
        if isinstance(outcome, str):
            raise Unavailable(
                "The controller does not answer.", remedy=f"Ask for op {outcome} later; `millrace doctor` tells why."
            )
        return cast(R, raise_refusal(outcome).result)

    def close(self) -> None:
        """Before the appender closes, which ends what still waits for the broker."""
        self._behind.shutdown(wait=False, cancel_futures=True)

    def on_applied(self, applied: list[Applied]) -> None:
        """The controller calls this, in its own thread, once for each op."""
        for one in applied:
            if isinstance(one.result, Waiting):
                self._in_line[one.op_id] = one.result.first or one.op_id
            else:
                self._answer(one)
        # Nobody repeats this call, so a listener that fails must not keep the others from hearing of the ops.
        for listener in self._listeners:
            try:
                listener(applied)
            except Exception as error:
                observe("trouble", kind="applied", error=f"{type(error).__name__}: {error}"[:1000])

    def _answer(self, one: Applied) -> None:
        """Runs in the controller's thread, while requests begin and end in the event loop's."""
        for asked in (one.op_id, *(op_id for op_id, first in list(self._in_line.items()) if first == one.op_id)):
            waiting = self._waiting.get(asked)
            if waiting is not None and not waiting.done() and waiting.set_running_or_notify_cancel():
                waiting.set_result(one)
            self._in_line.pop(asked, None)

    def _note_requested(self, op: Op[Any]) -> None:
        """Never raises: the op is in the log, and its caller must hear what becomes of it."""
        request = {
            "id": op.id,
            "kind": op.kind,
            "tenant": op.tenant,
            "subject": op.subject,
            "requested_us": time.time_ns() // 1000,
            "applied": False,
        }
        try:
            with self._store.write() as connection:
                insert_new(connection, t.requests, [request])
        except Exception as error:
            observe("trouble", kind="requests", error=f"{type(error).__name__}: {error}"[:1000])


def raise_refusal(applied: Applied) -> Applied:
    if applied.refusal is not None:
        raise applied.refusal.to_error()
    return applied


def _with_id(op: Op[Any]) -> Op[Any]:
    return op if op.id else op.asked_as(new_id("op"))
