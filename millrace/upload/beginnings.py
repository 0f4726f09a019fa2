"""Imports that began a moment ago, by tenant. A tenant's wish to begin one in, whether it may do so now out.

Each import costs the platform some milliseconds, even if it has one row. So tenants share how many may be young at once, by
their weights, as they share chunks in flight: beside another tenant, one with thousands of tiny imports waits for itself.
A tenant that is alone never waits."""

import threading
import time
from collections.abc import Callable

# Enough to keep two cores busy; more only makes each of them slower.
MOST_YOUNG = 16
LEAST_YOUNG = 4
# An import that takes longer waits for its bytes, a sink or a person, and costs nothing meanwhile.
YOUNG_SECONDS = 2.0
# A tenant shares with those that began an import within this time.
PRESENT_SECONDS = 5.0


class Beginnings:
    """Of one server; used from any thread. The cost of a call does not depend on the number of tenants."""

    def __init__(self, weight: Callable[[str], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._weight = weight
        self._clock = clock
        # By tenant, those that came last behind: when it asked to begin an import, and its weight then.
        self._present: dict[str, tuple[float, float]] = {}
        self._weights = 0.0
        # By tenant and by import, oldest first.
        self._young: dict[str, dict[str, float]] = {}
        self._tenants: dict[str, str] = {}
        self._lock = threading.Lock()

    def may_begin(self, tenant: str, import_id: str) -> bool:
        """Whether the import may begin; if so, it counts."""
        with self._lock:
            now = self._clock()
            self._is_present(tenant, now)
            young = self._young.setdefault(tenant, {})
            self._forget_old(young, now)
            if len(self._present) > 1 and len(young) >= self._share(tenant):
                return False
            young[import_id] = now
            self._tenants[import_id] = tenant
            return True

    def over(self, import_id: str) -> None:
        with self._lock:
            tenant = self._tenants.pop(import_id, None)
            if tenant is not None:
                self._young[tenant].pop(import_id, None)
                self._drop_if_empty(tenant)

    def _share(self, tenant: str) -> float:
        return max(LEAST_YOUNG, MOST_YOUNG * self._present[tenant][1] / self._weights)

    def _is_present(self, tenant: str, now: float) -> None:
        self._leave(tenant)
        weight = self._weight(tenant)
        self._present[tenant] = now, weight
        self._weights += weight
        while (oldest := next(iter(self._present))) and now - self._present[oldest][0] > PRESENT_SECONDS:
            self._leave(oldest)
            self._forget_old(self._young.get(oldest, {}), now)
            self._drop_if_empty(oldest)

    def _leave(self, tenant: str) -> None:
        known = self._present.pop(tenant, None)
        if known is not None:
            self._weights = self._weights - known[1] if self._present else 0.0

    def _forget_old(self, young: dict[str, float], now: float) -> None:
        while young and now - young[oldest := next(iter(young))] > YOUNG_SECONDS:
            del young[oldest]
            self._tenants.pop(oldest, None)

    def _drop_if_empty(self, tenant: str) -> None:
        if not self._young.get(tenant, True):
            del self._young[tenant]
