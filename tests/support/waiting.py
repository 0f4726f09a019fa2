"""Wait for a condition with a deadline: the only way a test lets time pass."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], T], deadline_seconds: float, what: str) -> T:
    """The condition's first true value; fails the test by name when it does not come in time."""
    ends_at = time.monotonic() + deadline_seconds
    while not (value := condition()):
        if time.monotonic() >= ends_at:
            raise AssertionError(f"not within {deadline_seconds:g} s: {what} (last value {value!r})")
        time.sleep(POLL_SECONDS)
    return value
