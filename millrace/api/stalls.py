"""Measures how long the event loop of the server does not get on: for that time nobody is answered.

It asks to be woken every few milliseconds and notes how much later it was. The metric is the worst of the last minute."""

import asyncio
import gc
import sys
import time
from collections import deque
from collections.abc import Callable

from millrace.observe import gauge

TICK_SECONDS = 0.01
SLOT_SECONDS = 10.0
SLOTS = 6
# The loop asks a thread that computes to let it go on after so long. Python's own 5 ms add up when several threads compute.
SWITCH_SECONDS = 0.001


def hold_threads_briefly() -> None:
    """Shortens what holds all threads of this process: a look of the garbage collector, and a thread that computes.

    What was made until now lives as long as the server, so the collector need not look through it: that took 0.15 s."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


class StallWatch:
    """Keeps the worst of each of the last slots, so that old stalls are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._worst: deque[float] = deque([0.0], SLOTS)
        self._slot_ends = clock() + SLOT_SECONDS

    @property
    def longest(self) -> float:
        return max(self._worst)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            begun = self._clock()
            await asyncio.sleep(TICK_SECONDS)
            self.note(self._clock() - begun - TICK_SECONDS)

    def note(self, stall: float) -> None:
        is_new = stall > self._worst[-1]
        if is_new:
            self._worst[-1] = stall
        if self._clock() >= self._slot_ends:
            self._slot_ends = self._clock() + SLOT_SECONDS
            self._worst.append(0.0)
        elif not is_new:
            return
        gauge("event_loop_stall", self.longest)
