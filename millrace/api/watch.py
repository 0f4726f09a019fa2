"""Wakes the requests that wait for an import's end."""

import asyncio
from collections import defaultdict

from millrace.model.ops import Applied
from millrace.model.ops.results import ImportStatus


class Watch:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def ended(self, import_id: str) -> "asyncio.Future[None]":
        """Done when the import has ended or is held; ask before looking at its state, so that no end is missed."""
        future = self._loop.create_future()
        self._ends[import_id].add(future)
        future.add_done_callback(lambda _: self._forget(import_id, future))
        return future

    def _forget(self, import_id: str, future: "asyncio.Future[None]") -> None:
        waiting = self._ends.get(import_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._ends[import_id]

    def on_applied(self, applied: list[Applied]) -> None:
        """Called from the controller's thread."""
        statuses = [one.result for one in applied if isinstance(one.result, ImportStatus)]
        rested = [status.import_id for status in statuses if status.rests]
        if rested:
            self._loop.call_soon_threadsafe(self._wake, rested)

    def _wake(self, ended: list[str]) -> None:
        for future in [future for import_id in ended for future in self._ends.get(import_id, ())]:
            if not future.done():
                future.set_result(None)
