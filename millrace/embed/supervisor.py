"""Run several children in order, restart the one that dies, stop them in reverse: children in, their events out.

Which children, and what an event means to the user, is the caller's business. Gives up when a child's restarts run out."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.embed.errors import ChildFailed
from millrace.embed.process import Child
from millrace.stopping import StopRequest

WATCH_PAUSE_SECONDS = 0.1
# All children together get so long to stop. Of it, each child that stops later has some reserved.
STOP_SECONDS = 16.0
RESERVED_SECONDS = 1.5


class Happening(StrEnum):
    STARTED = "started"
    READY = "ready"
    DIED = "died"
    LATE = "late"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Event:
    """One happening; `exit_code` for a death (negative: signal), `retry_seconds` when a restart follows."""

    child: str
    happening: Happening
    pid: int | None = None
    exit_code: int | None = None
    retry_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """At most `budget` restarts of one child within `window_seconds`, each pause twice the one before."""

    budget: int = 5
    window_seconds: float = 120.0
    first_pause_seconds: float = 0.2
    longest_pause_seconds: float = 10.0

    def pause_seconds(self, recent_restarts: int) -> float:
        return float(min(self.first_pause_seconds * 2**recent_restarts, self.longest_pause_seconds))


@dataclass(slots=True)
class _Watched:
    child: Child
    restarts_at: deque[float] = field(default_factory=deque)
    start_at: float | None = None
    ready_by: float | None = None


class Supervisor:
    """Keeps children running until it is asked to stop or one of them cannot be kept."""

    def __init__(self, children: Sequence[Child], policy: RestartPolicy, on_event: Callable[[Event], None]) -> None:
        self._watched = [_Watched(child) for child in children]
        self._policy = policy
        self._on_event = on_event
        self._stop_request = StopRequest()

    def request_stop(self) -> None:
        """From any thread or signal handler; `run` then stops all children and returns."""
        self._stop_request.make()

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start all in order, each when the one before is ready; call `on_ready`; keep them until asked to stop.

        Blocks. SIGINT and SIGTERM are requests to stop when called in the main thread. Raises ChildFailed when a child
        does not start or dies too often; whatever the end, nothing is left running."""
        with self._stop_request.heeding_signals():
            try:
                self._start_all()
                if not self._stop_request.is_made():
                    on_ready()
                while not self._stop_request.wait(WATCH_PAUSE_SECONDS):
                    for watched in self._watched:
                        self._tend(watched)
            finally:
                self._stop_all()

    def _start_all(self) -> None:
        for watched in self._watched:
            self._start(watched)
            while watched.ready_by is not None:
                if self._stop_request.wait(WATCH_PAUSE_SECONDS):
                    return
                for earlier in self._watched:
                    if earlier.child.pid is not None:
                        self._tend(earlier)

    def _tend(self, watched: _Watched) -> None:
        """One look at one child: restart it, notice that it is ready, late or dead, or nothing."""
        if watched.start_at is not None:
            if time.monotonic() >= watched.start_at:
                self._start(watched)
        elif not watched.child.running:
            self._schedule_restart(watched, Happening.DIED)
        elif watched.ready_by is not None:
            if watched.child.probe():
                watched.ready_by = None
                self._tell(watched, Happening.READY)
            elif time.monotonic() >= watched.ready_by:
                self._schedule_restart(watched, Happening.LATE)

    def _start(self, watched: _Watched) -> None:
        watched.start_at = None
        watched.child.start()
        watched.ready_by = time.monotonic() + watched.child.launch.ready_seconds
        self._tell(watched, Happening.STARTED)

    def _schedule_restart(self, watched: _Watched, why: Happening) -> None:
        child, now = watched.child, time.monotonic()
        exit_code = child.exit_code
        child.kill()
        while watched.restarts_at and watched.restarts_at[0] < now - self._policy.window_seconds:
            watched.restarts_at.popleft()
        recent = len(watched.restarts_at)
        if recent >= self._policy.budget:
            self._tell(watched, why, exit_code=exit_code)
            problem = f"failed {recent + 1} times within {self._policy.window_seconds:g} s, last with code {exit_code}"
            raise ChildFailed(child.name, problem, child.launch.log)
        pause = self._policy.pause_seconds(recent)
        watched.restarts_at.append(now)
        watched.start_at = now + pause
        self._tell(watched, why, exit_code=exit_code, retry_seconds=pause)

    def _stop_all(self) -> None:
        """The stack unwinds in reverse, and to its end even when one child cannot be ended."""
        ends_at = time.monotonic() + STOP_SECONDS
        started = [watched for watched in self._watched if watched.child.pid is not None]
        with ExitStack() as stops:
            for before, watched in enumerate(started):
                stops.callback(self._stop, watched, ends_at - before * RESERVED_SECONDS)

    def _stop(self, watched: _Watched, ends_at: float) -> None:
        self._tell(watched, Happening.STOPPING)
        watched.child.stop(max(RESERVED_SECONDS, ends_at - time.monotonic()))
        self._tell(watched, Happening.STOPPED)

    def _tell(
        self, watched: _Watched, happening: Happening, exit_code: int | None = None, retry_seconds: float | None = None
    ) -> None:
        self._on_event(Event(watched.child.name, happening, watched.child.pid, exit_code, retry_seconds))
