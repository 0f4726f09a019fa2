"""Records outcomes of deliveries in few transactions: outcomes in; each caller waits until its outcome is stored."""

import asyncio
from collections.abc import Awaitable, Callable

from millrace.notify.queue import Outcome


class Outcomes:
    def __init__(self) -> None:
        self._pending: list[tuple[Outcome, asyncio.Future[None]]] = []
        self._some = asyncio.Event()

    async def record(self, outcome: Outcome) -> None:
        recorded = asyncio.get_running_loop().create_future()
        self._pending.append((outcome, recorded))
        self._some.set()
        await recorded

    async def write(self, settle: Callable[[list[Outcome]], Awaitable[None]]) -> None:
        """Runs for ever. Outcomes that arrive during a transaction go into the next one."""
        while True:
            await self._some.wait()
            self._some.clear()
            batch, self._pending = self._pending, []
            await settle([outcome for outcome, _ in batch])
            for _, recorded in batch:
                if not recorded.done():
                    recorded.set_result(None)
