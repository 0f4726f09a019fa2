"""Events of the platform: a page at a time, or as they happen."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from millrace.client.documents import EventPage
from millrace.client.errors import Problem, Unreachable
from millrace.client.patience import PATIENCE_SECONDS
from millrace.client.resource import ResourceClient, at, given

_PAUSE_SECONDS = 0.5


class EventClient(ResourceClient):
    def page(
        self, *, after: int = 0, limit: int = 100, newest: bool = False, since: datetime | None = None
    ) -> EventPage:
        """Events in order, behind the number `after` and not before `since`; with `newest`, the last ones."""
        moment = None if since is None else since.astimezone(UTC).isoformat()
        params = given(after=after, limit=limit, newest=newest or None, since=moment)
        return self._ask(EventPage, "GET", at("events"), params=params)

    def follow(
        self, *, after: int | None = None, since: datetime | None = None, patience: float = PATIENCE_SECONDS
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each event with its number as it happens, until closed; a broken connection is taken up where it stopped.

        It begins behind the number `after` (0: with the oldest event that is kept) or at `since`, otherwise now. Raises when
        no connection could be made for `patience` seconds, however quiet the platform was before."""
        last = self._number_before(since) if after is None else after
        failing_since: float | None = None

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

    def _number_before(self, since: datetime | None) -> int:
        """Behind this number come the events since that moment; None: the events from now on."""
        if since is None:
            return int(self.page(limit=1, newest=True)["last"])
        first = self.page(limit=1, since=since)
        return int(first["last"]) - len(first["items"])
