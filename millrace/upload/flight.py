"""Chunks in flight: sent to Kafka and not yet judged, by tenant. Counts of chunks in, whether a tenant may send more out.

All tenants that are sending share what may be in flight, by their weights: a whale alone has all of it, and a mouse that
comes never waits behind more than that. Counts are absolute, so hearing one again changes nothing."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LEAST_SHARE = 8
# If nothing was judged for so long, the data plane is away, and shares do not matter.
STALLED_SECONDS = 10.0
# A tenant that waited within this time counts as one that wants to send.
WANTING_SECONDS = 1.0


@dataclass(slots=True)
class _Sent:
    tenant: str
    chunks: int = 0
    judged: int = 0


def weight_of(priority: int) -> float:
    """Five steps of priority double a tenant's share."""
    return float(2 ** (priority / 5))


class Flight:
    """Of one server; used from any thread."""

    def __init__(self, most: int, weight: Callable[[str], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._weight = weight
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        self._flying: dict[str, int] = {}
        self._wanting: dict[str, float] = {}
        self._moved_at = clock()
        self._lock = threading.Lock()

    def has_room(self, tenant: str) -> bool:
        """Whether the tenant may send more now."""
        with self._lock:
            now = self._clock()
            flying = self._flying.get(tenant, 0)
            if flying < LEAST_SHARE:
                return True
            self._wanting[tenant] = now
            return flying < self._share(tenant, now) or now - self._moved_at > STALLED_SECONDS

    def _share(self, tenant: str, now: float) -> float:
        self._wanting = {name: at for name, at in self._wanting.items() if now - at < WANTING_SECONDS}
        weights = {name: self._weight(name) for name in (*self._flying, *self._wanting, tenant)}
        return max(LEAST_SHARE, self._most * weights[tenant] / sum(weights.values()))

    def sent(self, tenant: str, import_id: str, chunks: int) -> None:
        """So many chunks of the import are on their way or judged."""
        with self._lock:
            if not self._flying:
                self._moved_at = self._clock()
            known = self._sent.setdefault(import_id, _Sent(tenant))
            self._fly(known, max(chunks, known.chunks), known.judged)

    def judged(self, chunks: Mapping[str, int]) -> None:
        """So many chunks of each import have their verdicts. Imports that were not sent here are ignored."""
        with self._lock:
            for import_id, number in chunks.items():
                known = self._sent.get(import_id)
                if known is not None and number > known.judged:
                    self._moved_at = self._clock()
                    self._fly(known, known.chunks, number)

    def over(self, import_id: str) -> None:
        with self._lock:
            known = self._sent.pop(import_id, None)
            if known is not None:
                self._fly(known, 0, 0)

    def _fly(self, of: _Sent, chunks: int, judged: int) -> None:
        before, after = max(0, of.chunks - of.judged), max(0, chunks - judged)
        of.chunks, of.judged = chunks, judged
        left = self._flying.get(of.tenant, 0) + after - before
        if left > 0:
            self._flying[of.tenant] = left
        else:
            self._flying.pop(of.tenant, None)

    def flying(self, tenant: str) -> int:
        with self._lock:
            return self._flying.get(tenant, 0)
