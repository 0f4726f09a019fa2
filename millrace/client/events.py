"""Events of the platform: a page at a time, or as they happen."""

import time
from collections.abc import Iterator
from typing import Any

from millrace.client.documents import EventPage
from millrace.client.errors import Problem, Unreachable
from millrace.client.patience import PATIENCE_SECONDS
from millrace.client.resource import ResourceClient, at, given

_PAUSE_SECONDS = 0.5


class EventClient(ResourceClient):
    def page(self, *, after: int = 0, limit: int = 100, newest: bool = False) -> EventPage:
        """Events in order, from `after` on; with `newest`, the last ones."""
        params = given(after=after, limit=limit, newest=newest or None)
        return self._ask(EventPage, "GET", at("events"), params=params)

    def follow(
        self, *, after: int | None = None, patience: float = PATIENCE_SECONDS
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each event with its number as it happens, until closed; a broken connection is taken up where it stopped.

        Raises when no connection could be made for `patience` seconds, however quiet the platform was before."""
        last, failing_since = after, None

        def opened() -> None:
            nonlocal failing_since
            failing_since = None

        while not self._connection.is_closed:
            try:
                for number, event in self._connection.server_sent(at("events", "stream"), last, opened):
                    last = number
                    yield number, event
            except (Unreachable, Problem) as failed:
                now = time.monotonic()
                failing_since = failing_since or now
                if not failed.may_pass or now - failing_since > patience:
                    raise
                time.sleep(_PAUSE_SECONDS)
