"""How long the SDK waits for a platform that is away, and how it spaces its attempts."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from millrace.client.errors import Problem, Unreachable

T = TypeVar("T")
PATIENCE_SECONDS = 120.0
LONGEST_POLL_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
POLL_PAUSE_SECONDS = 0.25


class Patience:
    """Bounds how long an upload may stay without progress, and spaces the attempts."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._seconds = seconds
        self._furthest = -1
        self._pause = FIRST_PAUSE_SECONDS
        self._since = time.monotonic()

    def progressed_to(self, offset: int) -> None:
        """Only an offset beyond all earlier ones counts: a resume point may lie before what was sent."""
        if offset > self._furthest:
            self._furthest, self._pause, self._since = offset, FIRST_PAUSE_SECONDS, time.monotonic()

    def pause_after(self, failed: Problem | Unreachable) -> None:
        """Raises the failure itself when it is final, or when the time is up or would be before it can pass."""
        if _waits_in_line(failed):
            self._since = time.monotonic()
        left = self._since + self._seconds - time.monotonic()
        least = failed.retry_seconds if isinstance(failed, Problem) else 0.0
        if left <= least or not (failed.may_pass or _is_out_of_step(failed)):
            raise failed
        time.sleep(min(max(self._pause, least), left))
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def repeat(self, ask: Callable[[], T]) -> T:
        """The answer, however often it takes to ask: the request may be sent twice."""
        while True:
            try:
                return ask()
            except (Problem, Unreachable) as failed:
                self.pause_after(failed)


def _is_out_of_step(failed: Problem | Unreachable) -> bool:
    """The offset differs, or the platform still holds a broken request: asking again tells."""
    return isinstance(failed, Problem) and failed.status == HTTPStatus.CONFLICT and failed.code in ("offset", "busy")


def _waits_in_line(failed: Problem | Unreachable) -> bool:
    """The platform keeps the place in line of an import into an exclusive table; asking again holds it."""
    return isinstance(failed, Problem) and failed.code == "in_line"


def poll(look: Callable[[float], T], is_over: Callable[[T], bool], timeout: float | None, patience: float) -> T:
    """What `look` returns once that is over or time is up; `look` may take the seconds it is given.

    A platform that is away for up to `patience` seconds is no failure."""
    ends = None if timeout is None else time.monotonic() + timeout
    answered = time.monotonic()
    while True:
        left = LONGEST_POLL_SECONDS if ends is None else max(0.0, ends - time.monotonic())
        try:
            found = look(min(left, LONGEST_POLL_SECONDS))
            answered = time.monotonic()
        except (Unreachable, Problem) as failed:
            if not failed.may_pass or time.monotonic() - answered > patience:
                raise
            time.sleep(POLL_PAUSE_SECONDS)
            continue
        if is_over(found) or (ends is not None and time.monotonic() >= ends):
            return found
