"""Groups of a batch into one of the platform's own sinks, table by table. No table waits for another one.

A table that fails is handed to its courier together with its groups, and so is one that takes too long, or that says that
long work begins: another engine's files are indexed, or rows get another shape. As long as something waits for a table, its
later groups queue behind. Which tables these are is known in memory: for a healthy table nobody asks the store."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from millrace.deliver.table_couriers import TableCouriers
from millrace.failpoint import reach
from millrace.lake.long_work import listening
from millrace.model.queues import own_queue
from millrace.model.sinks import SinkFailed
from millrace.sink.contract import Sink, StagedGroup, by_table

# A table that hangs keeps its thread until it answers.
TABLES_AT_ONCE = 64
# How long a batch waits for a table, and for the next ones after some have let it wait in vain.
PATIENCE_SECONDS, LEAST_PATIENCE_SECONDS = 3.0, 0.2


class TableWriter:
    """For one query, however often that is started."""

    def __init__(self, sink: Sink, couriers: TableCouriers) -> None:
        self.sink = sink.name
        self._write = sink.write
        self._couriers = couriers
        self._threads = ThreadPoolExecutor(TABLES_AT_ONCE, f"{sink.name}-table")

    def write(self, groups: Iterable[StagedGroup]) -> Iterator[Sequence[StagedGroup]]:
        """For each table the groups that are durable now. All others are parked."""
        patience = PATIENCE_SECONDS
        for of_table in by_table(groups):
            reach("before_sink_commit")
            key = own_queue(self.sink, of_table[0].tenant, of_table[0].table)
            if self._couriers.queue_behind(key, of_table):
                continue
            turn = threading.Event()
            attempt = self._threads.submit(self._write_aloud, of_table, turn.set)
            attempt.add_done_callback(_setter(turn))
            if not turn.wait(patience):
                patience = max(patience / 2, LEAST_PATIENCE_SECONDS)
            if not attempt.done():
                self._couriers.take_over(key, of_table, attempt)
                continue
            try:
                kept = attempt.result()
            except SinkFailed as error:
                self._couriers.take_over(key, of_table, error)
            else:
                reach("after_sink_commit")
                yield kept

    def _write_aloud(self, groups: Sequence[StagedGroup], is_slow: Callable[[], None]) -> Sequence[StagedGroup]:
        """Tells when work begins that takes long: then nobody waits for this table."""
        with listening(is_slow):
            return self._write(groups)


def _setter(event: threading.Event) -> Callable[[object], None]:
    return lambda _: event.set()
