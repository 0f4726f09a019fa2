"""Uploads that this server receives: their threads, their chunks in flight, and which of them were stopped."""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from millrace.api.shares import SharedThreads
from millrace.model.ops import Applied
from millrace.model.ops.results import ImportStatus
from millrace.settings import LimitSettings
from millrace.turns import Share
from millrace.upload.beginnings import Beginnings
from millrace.upload.flight import Flight

UPLOAD_THREADS = 16
# A tenant whose bytes Kafka takes slowly leaves some to the others.
THREADS_OF_TENANT = 12
# One batch that is judged, and one that waits to be: more would only make a newcomer wait.
FLIGHT_BATCHES = 2
BEGIN_SECONDS = 0.01


class InFlight:
    def __init__(
        self, chunks_per_batch: int, weight: Callable[[str], float], uploads: int = LimitSettings().uploads
    ) -> None:
        """`uploads`: how many a tenant may have at once; each waits for one thread at most."""
        self.threads = SharedThreads(Share("uploads", "uploads", UPLOAD_THREADS, THREADS_OF_TENANT, uploads))
        self.chunks = Flight(FLIGHT_BATCHES * chunks_per_batch, weight)
        self._beginnings = Beginnings(weight)
        self._beginning: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.stopped: set[str] = set()
        # Imports whose bytes are being taken in just now, whatever their leases say.
        self.at_work: set[str] = set()

    async def turn_to_begin(self, tenant: str, import_id: str) -> None:
        """Waits until the tenant may begin one more import. Its requests wait in the order in which they came."""
        lock = self._beginning.get(tenant) or self._beginning.setdefault(tenant, asyncio.Lock())
        async with lock:
            while not self._beginnings.may_begin(tenant, import_id):
                await asyncio.sleep(BEGIN_SECONDS)

    def began_none(self, import_id: str) -> None:
        """Whoever is refused, or comes again, takes no place."""
        self._beginnings.over(import_id)

    def on_applied(self, applied: list[Applied]) -> None:
        """Runs in the controller's thread."""
        for result in (one.result for one in applied):
            if isinstance(result, ImportStatus) and result.is_stopping:
                self.stopped.add(result.import_id)
            if result.over is not None:
                self.chunks.over(result.over)
                self._beginnings.over(result.over)

    def stop(self) -> None:
        self.threads.shutdown(cancel_futures=True)
