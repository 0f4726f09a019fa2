"""A time budget for a block that may hang in a driver's native code: beyond it, `TimeIsUp` is raised inside the block."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace.model.sinks import Fault, SinkFailed


class TimeIsUp(SinkFailed):
    """The target did not answer in time."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Only the main thread can be interrupted; elsewhere the block has all the time it takes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_signal: int, _frame: Any) -> None:
        raise TimeIsUp(f"No end within {seconds:g} s.", Fault.SINK)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
