"""Sends the due deliveries of one subscription, one at a time or several at once, until it is cancelled or unwanted."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from millrace.model.addresses import Networks
from millrace.notify.attempt import Post, attempt
from millrace.notify.queue import EventDelivered, EventDelivery, EventQueue, Outcome
from millrace.notify.retry import RetryPolicy
from millrace.notify.subscription import IN_ORDER, Subscription
from millrace.observe import log, observe
from millrace.outbound.http import post

AT_ONCE = 8
"""Concurrent deliveries of a subscription that needs no order."""
HEALTHY_CONNECTIONS = 128
FAILING_CONNECTIONS = 64
T = TypeVar("T")


class Outcomes:
    """Records outcomes of deliveries in few transactions. Each caller waits until its outcome is stored."""

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


@dataclass(frozen=True, slots=True)
class Shared:
    """What all senders share. Senders whose last attempt failed have a separate pool of connections."""

    queue: EventQueue
    thread: ThreadPoolExecutor
    pace: RetryPolicy
    allowed: Networks
    send: Post = post
    healthy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HEALTHY_CONNECTIONS))
    failing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FAILING_CONNECTIONS))
    outcomes: Outcomes = field(default_factory=Outcomes)

    async def in_store(self, work: Callable[..., T], *given: Any) -> T:
        """Runs the store's work in a thread beside the loop, one piece at a time."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *given)


class SubscriptionSender:
    """`position`: events up to it are queued. `waiting`: how many of them are not delivered yet."""

    def __init__(self, subscription: Subscription, shared: Shared, waiting: int) -> None:
        self.subscription = subscription
        self.position = 0
        self.waiting = waiting
        self._shared = shared
        self._news = asyncio.Event()
        self._due: deque[EventDelivery] = deque()
        self._flying: set[int] = set()
        self._is_failing = False
        self._is_unwanted = False

    def tell(self, subscription: Subscription) -> None:
        """There may be something to send, or the subscription changed."""
        if subscription != self.subscription:
            self.subscription = subscription
            self._due.clear()
        self._news.set()

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            while not self._is_unwanted:
                self._news.clear()
                delivery, pause = await self._next()
                if delivery is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), pause)
                    continue
                self._flying.add(delivery.number)
                attempts.create_task(self._deliver(delivery))

    async def _next(self) -> tuple[EventDelivery | None, float | None]:
        """The delivery to send now; else the seconds to wait if nothing happens before; None: wait without limit."""
        # A failing target gets one delivery at a time.
        at_once = 1 if self._is_failing or self.subscription.order == IN_ORDER else AT_ONCE
        if len(self._flying) >= at_once:
            return None, None
        pause = None
        if not self._due:
            found, pause = await self._shared.in_store(self._shared.queue.due, self.subscription)
            self._due.extend(each for each in found if each.number not in self._flying)
        return (self._due.popleft(), None) if self._due else (None, pause)

    async def _deliver(self, delivery: EventDelivery) -> None:
        shared = self._shared
        async with shared.failing if self._is_failing else shared.healthy:
            outcome = await attempt(self.subscription, delivery, shared.pace, shared.allowed, shared.send)
        self._is_failing = not isinstance(outcome, EventDelivered)
        if self._is_failing and self.subscription.order == IN_ORDER:
            self._due.clear()
        await shared.outcomes.record(outcome)
        self._flying.discard(delivery.number)
        self._count(outcome)
        self._news.set()

    def _count(self, outcome: Outcome) -> None:
        if isinstance(outcome, EventDelivered):
            self.waiting -= 1
            observe("webhook", outcome="delivered")
            return
        self._is_unwanted |= outcome.is_gone
        given_up = outcome.next_us is None
        self.waiting -= given_up
        observe("webhook", outcome="given_up" if given_up else "failed")
        log("webhook_failed", subscription=outcome.subscription, error=outcome.error)
