"""Programs that run elsewhere, on Kubernetes: there is nothing to start here, only files to import as they are finished.

They are imported under one run that stays open as long as the agreement is the same, in groups as a stream's are: this
machine does not hear when a program of another one ends."""

import time

from millrace.manage.openrun import OpenRun
from millrace.model.agreement import Agreement
from millrace.staging.runs import CLUSTER

# No news comes from folders that other machines write to: they are looked at.
LOOK_SECONDS = 2.0


def runs_elsewhere(agreement: Agreement | None) -> bool:
    return agreement is not None and agreement.app is not None and not agreement.app.runs_here


def is_elsewhere(run: OpenRun | None) -> bool:
    return run is not None and run.run.cause == CLUSTER


class PollTimer:
    """True once per interval, the first time at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = self._began = time.monotonic()

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._due:
            return False
        self._began, self._due = now, now + self._seconds
        return True

    def pause(self, share: float, most: float) -> None:
        """So long that what was done since it was due takes no more than its share, but not longer than `most` seconds.

        A platform that hangs makes a request long, and says nothing about the next one."""
        now = time.monotonic()
        self._due = max(self._due, now + min((now - self._began) / share, most))
