"""Room for rows that wait: bytes asked for in, a wait until they fit out. Back-pressure instead of memory."""

import asyncio
from collections import deque


class Room:
    """How many bytes may wait, per tenant and in total. The first to ask that fits is admitted first."""

    def __init__(self, per_tenant: int, total: int) -> None:
        self._per_tenant = per_tenant
        self._total = total
        self._taken = 0
        self._of: dict[str, int] = {}
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()

    async def take(self, tenant: str, size: int) -> None:
        if self._fits(tenant, size) and not any(name == tenant for name, _, _ in self._waiting):
            self._add(tenant, size)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (tenant, size, admitted)
        self._waiting.append(entry)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give(tenant, size)
            elif entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def give(self, tenant: str, size: int) -> None:
        self._add(tenant, -size)
        still: deque[tuple[str, int, asyncio.Future[None]]] = deque()
        behind: set[str] = set()
        for name, wanted, admitted in self._waiting:
            if name not in behind and self._fits(name, wanted) and not admitted.done():
                self._add(name, wanted)
                admitted.set_result(None)
            elif not admitted.done():
                behind.add(name)
                still.append((name, wanted, admitted))
        self._waiting = still

    def _fits(self, tenant: str, size: int) -> bool:
        return self._of.get(tenant, 0) + size <= self._per_tenant and self._taken + size <= self._total

    def _add(self, tenant: str, size: int) -> None:
        self._taken += size
        left = self._of.get(tenant, 0) + size
        if left:
            self._of[tenant] = left
        else:
            self._of.pop(tenant, None)
