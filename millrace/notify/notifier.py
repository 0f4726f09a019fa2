"""The notifier: delivers each event to each subscription that wants it, at least once, in a thread of its own.

It looks for new events and changed subscriptions, queues events for subscriptions, and keeps one sender per enabled
subscription. Senders do not wait for each other: a dead target delays no other."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from millrace.model.addresses import Networks
from millrace.notify.attempt import Post
from millrace.notify.queue import WINDOW, EventQueue, QueuedEvents
from millrace.notify.retry import RetryPolicy
from millrace.notify.subscription import Subscription
from millrace.notify.subscription_sender import Shared, SubscriptionSender
from millrace.observe import gauge
from millrace.outbound.http import post
from millrace.store.engine import ControlStore

IDLE_SECONDS = 0.5
"""How often it looks for changed subscriptions, and for events if nothing wakes it."""
GATHER_SECONDS = 0.02


class Notifier:
    """`wake` may be called from any thread when there may be new events."""

    def __init__(
        self, store: ControlStore, allowed: Networks, pace: RetryPolicy | None = None, send: Post = post
    ) -> None:
        self._queue = EventQueue(store)
        self._allowed = allowed
        self._pace = pace or RetryPolicy()
        self._send = send
        self._wake: Callable[[], object] = _nobody

    def wake(self) -> None:
        with suppress(RuntimeError):  # The loop may have just ended.
            self._wake()

    def run(self, stopping: threading.Event) -> None:
        try:
            asyncio.run(self._run(stopping))
        except ExceptionGroup as group:
            raise _first(group) from group
        finally:
            self._wake = _nobody

    async def _run(self, stopping: threading.Event) -> None:
        woken = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        # The store has a thread of its own: hanging name look-ups must not delay it.
        with ThreadPoolExecutor(1, "notify-store") as thread:
            shared = Shared(self._queue, thread, self._pace, self._allowed, self._send)
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(shared.outcomes.write(partial(shared.in_store, self._queue.settle)))
                senders = SubscriptionSenders(shared, tasks)
                try:
                    await senders.run(stopping, woken)
                finally:
                    senders.end()
                    writing.cancel()


class SubscriptionSenders:
    """One sender per enabled subscription. Queues events for them."""

    def __init__(self, shared: Shared, tasks: asyncio.TaskGroup) -> None:
        self._shared = shared
        self._tasks = tasks
        self._senders: dict[str, SubscriptionSender] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._newest: dict[str, int] = {}

    async def run(self, stopping: threading.Event, woken: asyncio.Event) -> None:
        looked = -IDLE_SECONDS
        while not stopping.is_set():
            woken.clear()
            if time.monotonic() - looked >= IDLE_SECONDS:
                looked = time.monotonic()
                await self._look_at_subscriptions()
            if self._senders:
                await self._look_at_events()
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), IDLE_SECONDS)
            await asyncio.sleep(GATHER_SECONDS)

    def end(self) -> None:
        for task in self._serving.values():
            task.cancel()

    async def _look_at_subscriptions(self) -> None:
        queue = self._shared.queue
        enabled = await self._shared.in_store(queue.subscriptions)
        for key in [key for key, task in self._serving.items() if key not in enabled or task.done()]:
            self._close(key)
        for key, subscription in enabled.items():
            if key not in self._senders:
                waiting = await self._shared.in_store(queue.waiting, key)
                sender = self._senders[key] = SubscriptionSender(subscription, self._shared, waiting)
                self._serving[key] = self._tasks.create_task(sender.serve())
            elif self._senders[key].subscription != subscription:
                self._senders[key].tell(subscription)
        gauge("webhooks_waiting", sum(sender.waiting for sender in self._senders.values()))

    async def _look_at_events(self) -> None:
        queue = self._shared.queue
        seen = max(self._newest.values(), default=0)
        self._newest |= await self._shared.in_store(queue.newest, seen)
        while behind := self._behind():
            for tenant, listening in behind.items():
                filled = await self._shared.in_store(queue.fill, tenant, self._newest[tenant], listening)
                for key in listening:
                    self._take_in(key, filled.get(key))

    def _take_in(self, key: str, filled: QueuedEvents | None) -> None:
        if filled is None:  # It was disabled or removed meanwhile.
            self._close(key)
            return
        sender = self._senders[key]
        sender.position = filled.position
        sender.waiting += len(filled.rows)
        if filled.rows:
            sender.tell(sender.subscription)

    def _close(self, key: str) -> None:
        self._serving.pop(key).cancel()
        del self._senders[key]

    def _behind(self) -> dict[str, dict[str, Subscription]]:
        """By tenant, the subscriptions with room for more events that lack some of the tenant's events."""
        behind: defaultdict[str, dict[str, Subscription]] = defaultdict(dict)
        for key, sender in self._senders.items():
            tenant = sender.subscription.tenant
            if sender.position < self._newest.get(tenant, 0) and sender.waiting < WINDOW:
                behind[tenant][key] = sender.subscription
        return behind


def _first(failure: BaseException) -> BaseException:
    """The failure that ended the others."""
    return _first(failure.exceptions[0]) if isinstance(failure, BaseExceptionGroup) else failure


def _nobody() -> None:
    """What `wake` calls while the notifier does not run."""
