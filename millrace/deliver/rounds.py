"""Rounds at queues: who looks at which queue when, and in which thread. What a round does is up to the kind of courier."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from millrace.deliver.queue import Queue
from millrace.exchange.places import Places
from millrace.exchange.queues import Queues
from millrace.model.queues import QueueKey, QueueState
from millrace.model.sinks import SinkTarget
from millrace.observe import observe

LOOK_SECONDS = 0.5


@dataclass
class WatchedQueue:
    """A queue that holds something, and since when a courier is at it, by the monotonic clock."""

    queue: Queue
    target: SinkTarget
    busy: bool = False
    busy_since: float = 0.0


class Rounds(ABC):
    """Targets that failed last time share a few threads, so that those that hang cannot starve the healthy ones."""

    def __init__(self, places: Places, queues: Queues, name: str, healthy_at_once: int, failing_at_once: int) -> None:
        self._places = places
        self._queues = queues
        self._name = name
        self._watched: dict[QueueKey, WatchedQueue] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._healthy = ThreadPoolExecutor(healthy_at_once, name)
        self._failing = ThreadPoolExecutor(failing_at_once, f"patient-{name}")

    @abstractmethod
    def _work(self, watched: WatchedQueue) -> bool:
        """One round. True when nothing is left to do."""

    @abstractmethod
    def _is_over(self, watched: WatchedQueue) -> bool:
        """Whether the queue need not be watched any longer. Called under the lock."""

    def _begin(self, *steps: Callable[[], None]) -> None:
        """Starts the thread that takes the steps again and again, then begins the rounds that are due."""
        threading.Thread(target=self._run, args=((*steps, self._begin_rounds),), name=self._name, daemon=True).start()

    def _run(self, steps: Sequence[Callable[[], None]]) -> None:
        while True:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            # Each by itself: a notice that cannot be parked must not keep deliveries from their targets.
            for step in steps:
                try:
                    step()
                except Exception as error:
                    # The notices and the items are still there; the next look takes them up.
                    observe("trouble", kind="sink", error=f"{type(error).__name__}: {error}"[:1000])

    def _watch(self, key: QueueKey, target: SinkTarget, state: QueueState | None = None) -> None:
        with self._lock:
            if key in self._watched:
                self._watched[key].target = target
            else:
                self._watched[key] = WatchedQueue(Queue(self._places, self._queues, key, state), target)

    def _begin_rounds(self) -> None:
        with self._lock:
            idle = [watched for watched in self._watched.values() if not watched.busy]
        is_due = {watched.queue.key: watched.queue.state.next_try <= time.time() for watched in idle}
        not_due = [key for key, due in is_due.items() if not due]
        asked = self._queues.take_resumes(not_due) if not_due else set()
        due = [watched for watched in idle if is_due[watched.queue.key] or watched.queue.key in asked]
        for watched in due:
            watched.busy, watched.busy_since = True, time.monotonic()
            pool = self._failing if watched.queue.state.tries else self._healthy
            pool.submit(self._round, watched)

    def _round(self, watched: WatchedQueue) -> None:
        try:
            watched.busy_since = time.monotonic()
            if self._work(watched):
                self._leave(watched)
        except Exception as error:
            # Not even the failure could be written: the store is away.
            observe(
                "trouble", kind="sink", queue=str(watched.queue.key), error=f"{type(error).__name__}: {error}"[:1000]
            )
        finally:
            watched.busy = False
            self._news.set()

    def _leave(self, watched: WatchedQueue) -> None:
        with self._lock:
            # Looked at again under the lock: what is parked meanwhile is watched, or still here.
            if self._watched.get(watched.queue.key) is watched and self._is_over(watched):
                del self._watched[watched.queue.key]
