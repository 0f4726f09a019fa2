"""How far a tenant's schedule has been followed, over restarts: a moment in, the same moment out.

Moments before a schedule was declared are nobody's fault, so another schedule begins anew."""

import json
from datetime import UTC, datetime
from pathlib import Path

from millrace.atomic import replace_file
from millrace.model.agreement import Schedule


class SchedulePosition:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            known = json.loads(path.read_text())
            self._schedule: str | None = known["schedule"]
            self.until = datetime.fromisoformat(known["handled_until"])
        except (OSError, ValueError, KeyError):
            self._schedule = None
            self.set(datetime.now(UTC))

    def follow(self, schedule: Schedule | None, now: datetime) -> None:
        """From now on this one, if it is another."""
        named = None if schedule is None else f"{schedule.cron} {schedule.time_zone}"
        if named != self._schedule:
            self._schedule = named
            self.set(now)

    def set(self, until: datetime) -> None:
        """Written before the run begins: one that a crash cuts off is not begun again, the next one takes its input."""
        self.until = until
        replace_file(self._path, json.dumps({"schedule": self._schedule, "handled_until": until.isoformat()}))
