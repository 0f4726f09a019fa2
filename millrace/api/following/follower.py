"""One connection that follows events: frames wait here, a bounded number of them, until they are sent."""

import asyncio
from collections import deque
from contextlib import suppress

MOST_WAITING = 1000


class Follower:
    """Hears the events behind number `after`, of the tenant `heard`; None: everybody's. `is_cut`: it took them too slowly and
    hears no more; those that wait here are still to be sent."""

    def __init__(self, heard: str | None, after: int) -> None:
        self.is_cut = False
        self._heard = heard
        self._last = after
        self._frames: deque[bytes] = deque()
        self._some = asyncio.Event()

    def offer(self, number: int, tenant: str, frame: bytes) -> bool:
        """Whether it is to hear the event. None is left out: behind the first one that finds no room it hears none."""
        if self.is_cut or number <= self._last or self._heard not in (None, tenant):
            return False
        self.is_cut = len(self._frames) >= MOST_WAITING
        if not self.is_cut:
            self._last = number
            self._frames.append(frame)
        self._some.set()
        return True

    async def take(self, seconds: float) -> bytes:
        """All that waits, as soon as something does. Nothing: nothing came in time, or the follower is cut off."""
        if not self._frames and not self.is_cut:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._some.wait()
        self._some.clear()
        taken = b"".join(self._frames)
        self._frames.clear()
        return taken
