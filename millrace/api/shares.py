"""Threads and other slots that tenants share: each has some at a time, and whoever waits longest among the tenants is next.

So a tenant that asks for much waits for itself. What may wait is bounded for each tenant; more is refused."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from millrace.model.errors import Exceeded
from millrace.settings import LimitSettings

# For whom this request works: the caller's tenant, or one of the two below.
PLATFORM, NOBODY = "(platform)", "(nobody)"
PLATFORM_TIMES = 50
ASKING: ContextVar[str] = ContextVar("asking", default=NOBODY)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """How many run at once, how many of them for one tenant, and how many of one tenant may wait. `limit` is the name in the
    settings of what a tenant may have."""

    name: str
    limit: str
    at_once: int
    of_tenant: int
    waiting: int
    retry_seconds: float = 1.0


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
            waiting.append(turn)
        self._go_on()
        return turn

    def give_back(self, tenant: str) -> None:
        with self._lock:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
        self._go_on()

    def refusal(self, tenant: str) -> Exceeded:
        share = self.share
        return Exceeded(
            f"{tenant} has {share.of_tenant} {share.name} running and {share.waiting} waiting.",
            remedy="Ask again when some of them have ended, and for fewer at once.",
            facts={"quota": share.limit, "limit": str(share.of_tenant + share.waiting)},
            retry_seconds=share.retry_seconds,
        )

    def _most_waiting(self, tenant: str) -> int:
        """The platform's own work is not refused because many tenants cause it."""
        return self.share.waiting * (PLATFORM_TIMES if tenant in (PLATFORM, NOBODY) else 1)

    def _is_full(self, tenant: str) -> bool:
        return self._running.total() >= self.share.at_once or self._running[tenant] >= self.share.of_tenant

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


class SharedThreads(ThreadPoolExecutor):
    """Threads that tenants share. Work counts for the tenant that is asking where it is submitted."""

    def __init__(self, share: Share) -> None:
        super().__init__(share.at_once, share.name.replace(" ", "-"))
        self.turns = ShareTurns(share)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        tenant = ASKING.get()
        done: Future[T] = Future()
        turn = self.turns.ask(tenant)

        def work() -> None:
            try:
                if not done.set_running_or_notify_cancel():
                    return
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:
                    done.set_exception(error)
                else:
                    done.set_result(result)
            finally:
                self.turns.give_back(tenant)

        turn.add_done_callback(lambda _: None if turn.cancelled() else self._start(work))
        done.add_done_callback(lambda _: turn.cancel())
        return done

    def _start(self, work: Callable[[], None]) -> None:
        super().submit(work)

    async def run(self, work: Callable[..., T], *given: Any, patience_seconds: float | None = None) -> T:
        """The result; refused if the work has not begun in time."""
        future = self.submit(work, *given)
        waiting = asyncio.wrap_future(future)
        if patience_seconds is not None:
            done, _ = await asyncio.wait([waiting], timeout=patience_seconds)
            if not done and future.cancel():
                raise self.turns.refusal(ASKING.get())
        return await waiting


class Shares:
    """What the requests of a server share besides its event loop."""

    def __init__(self, limits: LimitSettings) -> None:
        # For short reads and writes of the store and of files: what `asyncio.to_thread` uses.
        self.requests = SharedThreads(Share("requests", "waiting_requests", 16, 8, limits.waiting_requests))
        # For what asks others: names, sinks, the log's past.
        self.look_ups = SharedThreads(
            Share("look-ups", "look_ups", 8, limits.look_ups, limits.waiting_look_ups, retry_seconds=5.0)
        )
        # Each query may use its memory limit. More would only wait for the same cores.
        self.queries = SharedThreads(
            Share("queries", "queries", 4, limits.queries, limits.waiting_queries, retry_seconds=5.0)
        )
        self.what_ifs = ShareTurns(
            Share("what-ifs", "what_ifs", 2, limits.what_ifs, limits.waiting_what_ifs, retry_seconds=5.0)
        )

    def use(self) -> None:
        """In the event loop that serves the requests."""
        asyncio.get_running_loop().set_default_executor(self.requests)

    def close(self) -> None:
        for threads in (self.look_ups, self.queries):
            threads.shutdown(wait=False, cancel_futures=True)
