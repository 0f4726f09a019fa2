"""Pins of what waits for a table of the platform itself.

The files are in the table's folder, which may be damaged, closed, or on a disk that does not answer. Whoever parks does not
wait for it: the groups are parked first, by the control store alone, and pinned in a thread of its own. What could not be
pinned, the courier tries to pin after each failed round. A file without a pin is still where it was staged."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from millrace.deliver.queue import Item, Queue, item_of, where_staged
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.queues import QueueKey
from millrace.observe import observe
from millrace.sink.contract import StagedGroup

# A table that hangs keeps its thread until it answers.
PINS_AT_ONCE = 16
# How long a batch waits. A link takes far less; only a file on another disk is copied.
PATIENCE_SECONDS = 0.5


class TablePins:
    def __init__(self, places: Places, queues: Queues) -> None:
        self._places = places
        self._queues = queues
        self._under_way: set[QueueKey] = set()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(PINS_AT_ONCE, "table-pins")

    def pin(self, key: QueueKey, groups: Sequence[StagedGroup], patience: float) -> None:
        """After they were parked. Returns when the files are pinned, or the patience is over. One work at a time for each
        table: behind one that hangs, nobody waits."""
        with self._lock:
            if key in self._under_way:
                return
            self._under_way.add(key)
        wait([self._threads.submit(self._pin, key, groups)], patience)

    def _pin(self, key: QueueKey, groups: Sequence[StagedGroup]) -> None:
        try:
            pin_files(self._places, Queue(self._places, self._queues, key), [item_of(group) for group in groups])
        except Exception as error:
            # The store is away. The courier comes to these files too.
            observe("trouble", kind="table", queue=str(key), error=f"{type(error).__name__}: {error}"[:1000])
        finally:
            with self._lock:
                self._under_way.discard(key)


def pin_files(places: Places, queue: Queue, items: Iterable[Item]) -> None:
    """Pins what has no pin yet, as far as the folders allow. The delivery says what is wrong with those that do not."""
    pinned, failure = [], None
    for item in items:
        try:
            is_new = queue.pin(item, where_staged(places, item.group, queue.key.kind))
        except OSError as error:
            failure = failure or error
        else:
            pinned += [item] if is_new else []
    if failure is not None:
        observe("trouble", kind="table", queue=str(queue.key), error=f"not pinned: {failure}"[:1000])
    queue.release_delivered(pinned)
