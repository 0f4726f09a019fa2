"""Threads and other slots that the tenants of a server share (`millrace/turns.py`)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from millrace.settings import LimitSettings
from millrace.turns import ASKING, Share, ShareTurns

P = ParamSpec("P")
T = TypeVar("T")


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
