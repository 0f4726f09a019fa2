"""Keeps work in the background within a share of the machine's cores: it pauses so often that all its threads together take
no more processor time than that."""

import os
import time
from collections.abc import Callable

# A pause is not longer, so that a task that is to stop does so soon.
LONGEST_PAUSE_SECONDS = 5.0


class CoreShare:
    """The work calls `rest` between its steps. A share of 1 is all cores: then it never pauses."""

    def __init__(self, share: float = 1.0, sleep: Callable[[float], None] = time.sleep) -> None:
        self._cores = share * (os.cpu_count() or 1)
        self._is_whole = share >= 1
        self._sleep = sleep
        self._since = time.monotonic(), time.process_time()

    def rest(self) -> None:
        if self._is_whole:
            return
        begun, used = self._since
        due = (time.process_time() - used) / self._cores - (time.monotonic() - begun)
        if due > 0:
            self._sleep(min(due, LONGEST_PAUSE_SECONDS))
