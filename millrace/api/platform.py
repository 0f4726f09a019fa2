"""The control plane in one process: store, controller, accountant, timer; ops in, applied ops out."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast
from zlib import crc32

from sqlalchemy import select, update

from millrace.account.accountant import Accountant
from millrace.api.jobs.refreshing import Refreshing
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.jobs.sweeping import sweep
from millrace.api.jobs.timing import due_ops
from millrace.api.sealing import Sealing
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import USES_SECONDS, Tokens
from millrace.control.controller import Controller
from millrace.control.state import OPEN
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.queues import Queues
from millrace.failpoint import reach
from millrace.model.errors import Refused, Unavailable
from millrace.model.names import new_id
from millrace.model.ops import Applied
from millrace.model.ops.base import Op, TableOp
from millrace.model.ops.results import ImportStatus, Result, Waiting
from millrace.notify.notifier import Notifier
from millrace.observe import log, observe
from millrace.settings import Settings
from millrace.sink.context import SinkContext
from millrace.store import tables as t
from millrace.store.agreements import agreement_of
from millrace.store.engine import Store, insert_new
from millrace.store.records import find_by_key, find_open_imports
from millrace.upload.flight import Flight
from millrace.wire.client import Appended, Appender, Cluster, Topics
from millrace.wire.envelope import pack
from millrace.wire.topics import RAW_INPUT, TABLE_OPS, catalogue

SOON_SECONDS = 0.25
ANSWER_SECONDS = 10.0
# Shorter than any client waits for an answer.
TURN_SECONDS = 15.0
SWEEP_SECONDS = 600.0
UPLOAD_THREADS = 16
# One that is judged, and one that waits to be: more would only make a newcomer wait.
FLIGHT_BATCHES = 2

R = TypeVar("R", bound=Result)


class Platform:
    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.exchange = open_exchange(settings.home)
        self.store = Store(settings.control_store(self.exchange.places.control_store))
        self.queues = Queues(self.store)
        self.tokens = Tokens(self.store)
        self.topics = Topics(cluster)
        self.topics.ensure(
            catalogue(settings.kafka.raw_partitions, settings.kafka.replication), settings.kafka.replication
        )
        self.raw_partitions = self.topics.partitions(RAW_INPUT)
        self._op_partitions = self.topics.partitions(TABLE_OPS)
        self.appender = Appender(cluster)
        self.uploads = ThreadPoolExecutor(UPLOAD_THREADS, "upload")
        self.accountant = Accountant(self.store, cluster, self.appender, self.exchange)
        self.notifier = Notifier(self.store, settings.api.private_targets)
        self.sinks = SinkWatch(self.exchange.places, self.queues, self._parked_limit, self._is_awaited, self._append)
        self.quotas = Quotas(self.store)
        self.sealing = Sealing(self.exchange, settings.kms, self.quotas)
        self.flight = Flight(FLIGHT_BATCHES * settings.spark.bulk_chunks_per_batch, self.quotas.weight)
        self.accountant.listen(self.flight.judged)
        self.accountant.ops_kept_days = settings.kafka.ops_kept_days
        self.sink_context = SinkContext.of(settings, self.exchange.places)
        self.closed: set[str] = set()
        self.at_work: set[str] = set()
        self._pinned: dict[str, int] = {}
        self.alive: dict[str, float] = {}
        self._waiting: dict[str, Future[Applied]] = {}
        self._in_line: dict[str, str] = {}
        self._refreshing = Refreshing(self.store, self._append)
        self._listeners: list[Callable[[list[Applied]], None]] = [self._refreshing.on_applied]
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, *, controller: bool = True) -> None:
        self.exchange.places.clear_spool()
        self._renew_leases()
        if controller:
            self._thread("controller", self._run_controller)
            self._thread("notifier", lambda: self.notifier.run(self._stopping))
        self._thread("accountant", lambda: self.accountant.run(self._stopping))
        self.uploads.submit(self._refreshing.catch_up)
        self._thread("timer", self._run_timer)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        self.uploads.shutdown(cancel_futures=True)
        self.appender.close()
        self.store.close()

    def listen(self, listener: Callable[[list[Applied]], None]) -> None:
        """Calls the listener, from the controller's thread, with ops that have just been applied."""
        self._listeners.append(listener)

    async def submit(self, op: Op[Any], *, until_its_turn: bool = False) -> Applied | str:
        """Appends an op and waits for what becomes of it: its outcome, or its id if nobody has evaluated it in time.

        An op that waits for its turn on an exclusive table is waited for as well if `until_its_turn`."""
        await self._refuse_if_full(op)
        op = _with_id(op)
        waiting: Future[Applied] = Future()
        self._waiting[op.id] = waiting
        try:
            await asyncio.wrap_future(self._append(op))
            reach("after_op_append")
            answer = asyncio.wrap_future(waiting)
            done, _ = await asyncio.wait([answer], timeout=SOON_SECONDS)
            if not done and op.id not in self._in_line:
                # Only an op that nobody has evaluated yet needs to be known as requested.
                await asyncio.to_thread(self._note_requested, op)
            done, _ = await asyncio.wait([answer], timeout=ANSWER_SECONDS)
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

    async def applied(self, op: Op[R]) -> R:
        """The same for callers that can do nothing without the result. Raises what the controller refused."""
        outcome = await self.submit(op, until_its_turn=True)
        if isinstance(outcome, str):
            raise Unavailable(
                "The controller does not answer.", remedy=f"Ask for op {outcome} later; `millrace doctor` tells why."
            )
        return cast(R, raise_refusal(outcome).result)

    async def _refuse_if_full(self, op: Op[Any]) -> None:
        """Rows over a quota, or for a table whose sinks keep too much waiting, unless they were admitted before."""
        if not isinstance(op, TableOp) or not op.BRINGS_ROWS:
            return
        try:
            self.quotas.refuse_rows(op.tenant)
            self.sinks.refuse_if_full(op.tenant, op.table)
        except Refused:
            key = op.request_key
            if not key or not await asyncio.to_thread(self._is_known, op.tenant, key):
                raise

    def _is_known(self, tenant: str, key: str) -> bool:
        with self.store.read() as connection:
            return find_by_key(connection, tenant, key) is not None

    def _parked_limit(self, tenant: str) -> int:
        with self.store.read() as connection:
            agreement = agreement_of(connection, tenant)
        agreed = None if agreement is None else agreement.quotas.parked_bytes
        return self.settings.sinks.parked_bytes if agreed is None else agreed

    def _is_awaited(self, tenant: str, table: str, sink: str) -> bool:
        with self.store.read() as connection:
            return any(sink in imp.sinks for imp in find_open_imports(connection, tenant, table))

    def _append(self, op: Op[Any]) -> "Future[Appended]":
        op = _with_id(op)
        return self.appender.append(TABLE_OPS, op.tenant.encode(), pack(op.to_dict()), self._partition(op.tenant))

    def _note_requested(self, op: Op[Any]) -> None:
        request = {
            "id": op.id,
            "kind": op.kind,
            "tenant": op.tenant,
            "subject": op.subject,
            "requested_us": time.time_ns() // 1000,
            "applied": False,
        }
        with self.store.write() as connection:
            insert_new(connection, t.requests, [request])

    def _partition(self, tenant: str) -> int:
        """A tenant's ops share one partition for good: the one it was first given."""
        if tenant not in self._pinned:
            with self.store.read() as connection:
                pinned = connection.execute(select(t.tenants.c.partition).where(t.tenants.c.name == tenant)).scalar()
            if pinned is None:
                return crc32(tenant.encode()) % self._op_partitions
            self._pinned[tenant] = int(pinned)
        return self._pinned[tenant]

    def _run_controller(self) -> None:
        definitions, stops = self.exchange.definitions, self.exchange.stops
        controller = Controller(self.store, self.cluster, self.appender, definitions, stops, self._on_applied)
        controller.run(self._stopping)

    def _on_applied(self, applied: list[Applied]) -> None:
        for one in applied:
            result = one.result
            if isinstance(result, Waiting):
                self._in_line[one.op_id] = result.first or one.op_id
                continue
            self._answer(one)
            if isinstance(result, ImportStatus) and result.is_stopping:
                self.closed.add(result.import_id)
            if result.over is not None:
                self.flight.over(result.over)
                self.quotas.over(result.over)
        received = {import_id for one in applied for import_id in one.result.recheck}
        # These ops are told of once: trouble of one who hears must not keep the others from it.
        for hear in (lambda _: self.accountant.recheck(received), lambda _: self.notifier.wake(), *self._listeners):
            try:
                hear(applied)
            except Exception as error:
                observe("trouble", kind="applied", error=f"{type(error).__name__}: {error}"[:1000])

    def _answer(self, one: Applied) -> None:
        """Called from the controller's thread, while requests begin and end in the loop's."""
        for asked in (one.op_id, *(op_id for op_id, first in list(self._in_line.items()) if first == one.op_id)):
            waiting = self._waiting.get(asked)
            if waiting is not None and not waiting.done() and waiting.set_running_or_notify_cancel():
                waiting.set_result(one)
            self._in_line.pop(asked, None)

    def _renew_leases(self) -> None:
        """Whoever was uploading, or held a span open, when the platform went down gets the whole lease again."""
        with self.store.write() as connection:
            now_us = time.time_ns() // 1000
            connection.execute(update(t.uploads).values(seen_us=now_us))
            connection.execute(update(t.spans).where(t.spans.c.state == OPEN).values(seen_us=now_us))

    def _run_timer(self) -> None:
        lease = self.settings.api.lease_seconds
        swept = noted = time.monotonic()
        while not self._stopping.wait(min(1.0, lease / 4)):
            self.alive["timer"] = time.monotonic()
            with self.store.read() as connection:
                now_us, retention = time.time_ns() // 1000, self.settings.api.drop_retention_seconds
                due = due_ops(connection, now_us, lease, retention, self.at_work)
            for op in due:
                self._append(op)
            self.sinks.look()
            if time.monotonic() > noted + USES_SECONDS:
                noted = time.monotonic()
                self.tokens.note_uses()
                self.quotas.write()
            if time.monotonic() > swept + SWEEP_SECONDS:
                swept = time.monotonic()
                sweep(self.store, self.exchange)

    def work(self, name: str, work: Callable[[threading.Event], None]) -> None:
        """Goes on with the work, in a thread of its own, until the platform stops."""
        self._thread(name, lambda: work(self._stopping))

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        def keep_working() -> None:
            pause = 0.2
            while not self._stopping.is_set():
                try:
                    self.alive[name] = time.monotonic()
                    work()
                except Exception as error:
                    observe("trouble", kind=name, error=f"{type(error).__name__}: {error}"[:1000])
                    self.alive.pop(name, None)
                    self._stopping.wait(pause)
                    pause = min(pause * 2, 5.0)

        thread = threading.Thread(target=keep_working, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        log("thread_started", name_=name)


def raise_refusal(applied: Applied) -> Applied:
    if applied.refusal is not None:
        raise applied.refusal.to_error()
    return applied


def _with_id(op: Op[Any]) -> Op[Any]:
    return op if op.id else op.asked_as(new_id("op"))
