"""One connection that follows events: their text waits here, a bounded number of them, until it is sent."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from millrace.api.following.reading import FedEvent

MOST_WAITING = 1000
TOO_SLOW = b"retry: 500\n: cut off: events came faster than they were read. Connect again with Last-Event-ID.\n\n"
REVOKED = b": the token is no longer valid\n\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Events that many followers hear, made into one text for all of them."""

    events: Sequence[FedEvent]
    text: bytes

    @classmethod
    def of(cls, events: Sequence[FedEvent]) -> "Bundle":
        return cls(events, b"".join(event.frame for event in events))

    def behind(self, number: int) -> "Bundle":
        return self if self.events[0].number > number else Bundle.of([e for e in self.events if e.number > number])


@dataclass(frozen=True, slots=True)
class FollowedBy:
    """`tenant`: whose connection it is. `heard`: the tenant whose events it hears. None: the platform's; everybody's."""

    tenant: str | None
    heard: str | None
    token: str | None = None


class Follower:
    """Hears the events behind number `after`. Once it has a `farewell`, it hears no more, and is sent what waits and this."""

    def __init__(self, who: FollowedBy, after: int) -> None:
        self.who = who
        self.farewell = b""
        self._after = after
        self._waiting = 0
        self._texts: list[bytes] = []
        self._some = asyncio.Event()

    def offer(self, bundle: Bundle) -> None:
        """Takes all of it or none: behind the first bundle that finds no room it hears nothing."""
        bundle = bundle.behind(self._after)
        if self.farewell or not bundle.events:
            return
        if self._waiting > 0 and self._waiting + len(bundle.events) > MOST_WAITING:
            self.farewell = TOO_SLOW
        else:
            self._waiting += len(bundle.events)
            self._texts.append(bundle.text)
        self._some.set()

    def revoke(self) -> None:
        """Its token is no longer valid: it may not hear even what waits."""
        self.farewell = REVOKED
        self._texts.clear()
        self._some.set()

    async def take(self, seconds: float) -> bytes:
        """All that waits, as soon as something does. Nothing: nothing came in time, or it is time for the farewell."""
        if not self._texts and not self.farewell:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._some.wait()
        self._some.clear()
        texts, self._texts, self._waiting = self._texts, [], 0
        return texts[0] if len(texts) == 1 else b"".join(texts)
