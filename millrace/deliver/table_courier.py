"""One round of a courier at a table of the platform itself: what waits for it is written by its own sink, in this process."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from millrace.deliver.delivery import Delivered
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.pace import after_failure, after_success, next_portion
from millrace.deliver.queue import Item, Queue, where_staged
from millrace.deliver.rounds import WatchedQueue
from millrace.deliver.table_pins import pin_files
from millrace.deliver.waiver import give_up
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.exchange.safe_version import SafeVersion
from millrace.model.errors import MillraceError
from millrace.model.sinks import Fault
from millrace.observe import log, observe
from millrace.sink.contract import Sink, StagedGroup
from millrace.sink.delta.faults import table_failure


@dataclass(frozen=True)
class TableCourier:
    sinks: Mapping[str, Sink]
    places: Places
    queues: Queues
    facts: FactWriter
    safe_version: SafeVersion

    def work(self, watched: WatchedQueue) -> bool:
        """True when nothing is left to do. Whatever fails, the next round comes after a pause."""
        try:
            return self._work(watched.queue)
        except Exception as error:
            put_off(watched.queue, error)
            return False

    def _work(self, queue: Queue) -> bool:
        record = self.queues.get(queue.key)
        if record is None:
            return True
        queue.state = record.state
        left = give_up(self.safe_version, queue, record.waiver)
        portion = next_portion(left, queue.state.most_rows)
        if not portion:
            return True
        try:
            kept = self._write(queue, portion)
        except Exception:
            pin_files(self.places, queue, left)
            raise
        self.facts.write_durable(queue.key.target, tuple(chain.from_iterable(group.chunks for group in kept)))
        if queue.state.parked_since is not None:
            log("sink_resumed", sink=queue.key.target, table=str(queue.key))
        queue.done(portion, after_success(queue.state, portion, 0))
        return len(portion) == len(left)

    def _write(self, queue: Queue, portion: Sequence[Item]) -> Sequence[StagedGroup]:
        for item in portion:
            folder = where_staged(self.places, item.group, queue.key.kind)
            try:
                queue.restore(item, folder)
            except OSError as error:
                if table_failure(error, folder, self.places.is_on_our_disk) is None:
                    raise
                # The sink finds the same, and says what to do.
        return self.sinks[queue.key.kind].write([item.group for item in portion])


def put_off(queue: Queue, error: Exception) -> None:
    """The next try is after a pause that grows. In memory first: if the store is away as well, the pause holds."""
    words = f"{error}" if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
    # Tenants read it.
    outcome = Delivered(Fault.TABLE.value, queue.places.below_home(words)[:1000])
    queue.state = after_failure(queue.state, outcome, (), time.time())
    queue.done((), queue.state)
    observe("trouble", kind="table", queue=str(queue.key), error=words[:1000])
