"""Couriers for the platform's own tables: the Delta tables on its disk, and the error store. Its queries write these
directly. Only what a table could not take, and what came behind it, is parked and brought by a courier."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.pace import after_success
from millrace.deliver.queue import Queue
from millrace.deliver.rounds import Rounds, WatchedQueue
from millrace.deliver.table_courier import TableCourier, put_off
from millrace.deliver.table_pins import PATIENCE_SECONDS, TablePins
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.queues import Queues
from millrace.model.queues import QueueKey
from millrace.model.sinks import Fault, SinkFailed, SinkTarget
from millrace.sink.contract import Sink, StagedGroup

HEALTHY_AT_ONCE, FAILING_AT_ONCE = 2, 4
# A table that is written for so long is reported like one that fails.
HANGING_SECONDS = 30.0


class TableCouriers(Rounds):
    def __init__(self, exchange: Exchange, queues: Queues, facts: FactWriter, sinks: Sequence[Sink]) -> None:
        super().__init__(exchange.places, queues, "table-courier", HEALTHY_AT_ONCE, FAILING_AT_ONCE)
        named = {sink.name: sink for sink in sinks}
        self._pins = TablePins(exchange.places, queues)
        self._courier = TableCourier(named, exchange.places, queues, facts, exchange.safe_version)

    def start(self) -> None:
        """From now on it is known which tables have something waiting: the queries start after this."""
        for record in self._queues.with_parked():
            if record.key.is_own:
                self._watch(record.key, _target(record.key), record.state)
        self._begin(self._report_hanging)

    def queue_behind(self, key: QueueKey, groups: Sequence[StagedGroup]) -> bool:
        """Parks the groups behind others of their table, durably. False if no other waits: then nothing happens."""
        with self._lock:
            if key not in self._watched:
                return False
            self._park(key, groups)
        self._pins.pin(key, groups, PATIENCE_SECONDS)
        self._news.set()
        return True

    def take_over(
        self, key: QueueKey, groups: Sequence[StagedGroup], cause: "SinkFailed | Future[Sequence[StagedGroup]]"
    ) -> None:
        """Parks the groups of a table that failed, or whose write is still under way, durably. A write that succeeds after
        all is done once more, which changes nothing."""
        record = self._queues.get(key)
        watched = WatchedQueue(Queue(self._places, self._queues, key, record.state if record else None), _target(key))
        watched.busy, watched.busy_since = True, time.monotonic()
        with self._lock:
            self._park(key, groups)
            self._watched[key] = watched
        # A table that let the batch wait may let the pins wait as well.
        self._pins.pin(key, groups, PATIENCE_SECONDS if isinstance(cause, SinkFailed) else 0.0)
        if isinstance(cause, SinkFailed):
            self._release(watched, cause)
        elif cause.cancel():
            # It never began: tables that hang have all threads of the query. The courier has its own.
            self._release(watched, None)
        else:
            cause.add_done_callback(partial(self._note_end, watched))

    def _note_end(self, watched: WatchedQueue, attempt: "Future[Sequence[StagedGroup]]") -> None:
        error = attempt.exception()
        self._release(watched, error if isinstance(error, Exception) else None)

    def _release(self, watched: WatchedQueue, error: Exception | None) -> None:
        """The courier may go to the queue, after a pause if the table failed."""
        try:
            if error is not None:
                put_off(watched.queue, error)
        finally:
            watched.busy = False
            self._news.set()

    def _park(self, key: QueueKey, groups: Sequence[StagedGroup]) -> None:
        """Called under the lock, so it opens no file of the table: the folder may be unusable, or not answer."""
        queue = Queue(self._places, self._queues, key)
        with self._queues.pinning_of(key):
            self._queues.park([queue.row_of(group, None) for group in groups])

    def _work(self, watched: WatchedQueue) -> bool:
        return self._courier.work(watched)

    def _is_over(self, watched: WatchedQueue) -> bool:
        if watched.queue.waiting():
            return False
        state = watched.queue.state
        if state.parked_since is not None:
            # Given up, or reported as hanging at the very end: nothing waits, so nothing is in the way.
            watched.queue.done((), after_success(state, (), 0))
        return True

    def _report_hanging(self) -> None:
        with self._lock:
            busy = [watched for watched in self._watched.values() if watched.busy]
        for watched in busy:
            seconds = time.monotonic() - watched.busy_since
            if seconds > HANGING_SECONDS and watched.queue.state.parked_since is None:
                put_off(watched.queue, SinkFailed(f"No end after {seconds:.0f} s.", Fault.TABLE, "It is waited for."))


def _target(key: QueueKey) -> SinkTarget:
    return SinkTarget(key.target, key.kind)
