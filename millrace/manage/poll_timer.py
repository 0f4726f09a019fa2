"""Programs that run elsewhere, on Kubernetes: there is nothing to start here, only files to import as they are finished.

They are imported under one run that stays open as long as the agreement is the same, in groups as a stream's are: this
machine does not hear when a program of another one ends."""

from datetime import datetime, timedelta

from millrace.manage.openrun import OpenRun
from millrace.model.agreement import Agreement

CLUSTER = "cluster"
# No news comes from folders that other machines write to: they are looked at.
LOOK_EVERY = timedelta(seconds=2)


def runs_elsewhere(agreement: Agreement | None) -> bool:
    return agreement is not None and agreement.app is not None and not agreement.app.runs_here


def is_elsewhere(run: OpenRun | None) -> bool:
    return run is not None and run.run.cause == CLUSTER


class PollTimer:
    """True when it is time to look again."""

    def __init__(self) -> None:
        self._last: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        if self._last is not None and now - self._last < LOOK_EVERY:
            return False
        self._last = now
        return True
