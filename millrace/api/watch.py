"""Wakes the requests that wait: for an import's end, or for the next event."""

import asyncio
from collections import defaultdict

from millrace.model.ops import Applied
from millrace.model.ops.results import ImportStatus


class Watch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._news: set[asyncio.Future[None]] = set()

    def ended(self, import_id: str) -> "asyncio.Future[None]":
        """Done when the import has ended or is held; ask before looking at its state, so that no end is missed."""
        return self._waiter(self._ends[import_id])

    def news(self) -> "asyncio.Future[None]":
        """Done when there may be new events."""
        return self._waiter(self._news)

    def _waiter(self, group: "set[asyncio.Future[None]]") -> "asyncio.Future[None]":
        future = self._loop.create_future()
        group.add(future)
        future.add_done_callback(group.discard)
        return future

    def on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        statuses = [one.result for one in applied if isinstance(one.result, ImportStatus)]
        self._loop.call_soon_threadsafe(self._wake, [status.import_id for status in statuses if status.rests])

    def _wake(self, ended: list[str]) -> None:
        waiting = {future for import_id in ended for future in self._ends.pop(import_id, ())} | self._news
        for future in list(waiting):
            if not future.done():
                future.set_result(None)
