"""Slots that tenants share: each has some at a time, and whoever waits longest among the tenants is next.

So a tenant that asks for much waits for itself. What may wait is bounded for each tenant; more is refused."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from millrace.model.errors import Overloaded

# For whom this request works: the caller's tenant, or one of the two below.
PLATFORM, NOBODY = "(platform)", "(nobody)"
PLATFORM_TIMES = 50
ASKING: ContextVar[str] = ContextVar("asking", default=NOBODY)


@dataclass(frozen=True, slots=True)
class Share:
    """How many run at once, how many of them for one tenant, and how many of one tenant, and of all together, may wait.
    `limit` is the name in the settings of what a tenant may have."""

    name: str
    limit: str
    at_once: int
    of_tenant: int
    waiting: int
    retry_seconds: float = 1.0
    all_waiting: int | None = None


class ShareTurns:
    """Gives out the slots of a share. Used from any thread."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[Future[None]]] = {}

    def ask(self, tenant: str) -> "Future[None]":
        """Done when it is this one's turn; then `give_back` is due. A turn that is no longer wanted is cancelled."""
        turn: Future[None] = Future()
        with self._lock:
            waiting = self._waiting.setdefault(tenant, deque())
            if len(waiting) >= self._most_waiting(tenant) and self._is_full(tenant):
                waiting = self._waiting[tenant] = deque(each for each in waiting if not each.cancelled())
                if len(waiting) >= self._most_waiting(tenant):
                    raise self.refusal(tenant)
            if self._is_full(tenant) and self._all_wait():
                raise self.refusal(tenant)
            waiting.append(turn)
        self._go_on()
        return turn

    def give_back(self, tenant: str) -> None:
        with self._lock:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
        self._go_on()

    def running(self, tenant: str) -> int:
        return self._running[tenant]

    def refusal(self, tenant: str) -> Overloaded:
        share = self.share
        has_all = self._running[tenant] >= share.of_tenant
        mine = f"{tenant} has {share.of_tenant} {share.name} running and {share.waiting} waiting."
        return Overloaded(
            mine if has_all else f"All {share.at_once} {share.name} that run at once are taken.",
            remedy="Ask again when some of them have ended, and for fewer at once.",
            facts={"quota": share.limit, "limit": str(share.of_tenant + share.waiting)},
            retry_seconds=share.retry_seconds,
        )

    def _most_waiting(self, tenant: str) -> int:
        """The platform's own work is not refused because many tenants cause it."""
        return self.share.waiting * (PLATFORM_TIMES if tenant in (PLATFORM, NOBODY) else 1)

    def _is_full(self, tenant: str) -> bool:
        return self._running.total() >= self.share.at_once or self._running[tenant] >= self.share.of_tenant

    def _all_wait(self) -> bool:
        most = self.share.all_waiting
        waiting = (turn for turns in self._waiting.values() for turn in turns if not turn.cancelled())
        return most is not None and sum(1 for _ in waiting) >= most

    def _go_on(self) -> None:
        # Futures tell their listeners, which may ask for more: not under the lock.
        while (turn := self._next()) is not None:
            turn.set_result(None)

    def _next(self) -> "Future[None] | None":
        with self._lock:
            for tenant in list(self._waiting):
                if self._is_full(tenant):
                    continue
                waiting = self._waiting.pop(tenant)
                while waiting and not waiting[0].set_running_or_notify_cancel():
                    waiting.popleft()
                if not waiting:
                    continue
                turn = waiting.popleft()
                self._running[tenant] += 1
                # Behind all the others: they are next.
                if waiting:
                    self._waiting[tenant] = waiting
                return turn
        return None

    @asynccontextmanager
    async def turn(self, patience_seconds: float) -> AsyncIterator[None]:
        """A slot for the block; refused if it is not free in time."""
        tenant = ASKING.get()
        turn = self.ask(tenant)
        try:
            await asyncio.wait([asyncio.wrap_future(turn)], timeout=patience_seconds)
            if turn.cancel():
                raise self.refusal(tenant)
            yield
        finally:
            if not turn.cancel():
                self.give_back(tenant)

    def wait(self, tenant: str, patience_seconds: float) -> None:
        """Blocks the thread until it has a slot; refused if none is free in time. Then `give_back` is due."""
        turn = self.ask(tenant)
        try:
            turn.result(patience_seconds)
        except TimeoutError:
            if turn.cancel():
                raise self.refusal(tenant) from None
