"""A run that is not over: its record on disk, kept up to date while its program runs and its files are imported."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from millrace.exchange.app_folders import Staging
from millrace.exchange.app_news import AppNews
from millrace.failpoint import reach
from millrace.manage.logs import gather_own_logs, seal_logs
from millrace.model.errors import MillraceError
from millrace.observe import observe
from millrace.seal.cipher import Seal
from millrace.staging.run_news import note_of
from millrace.staging.runs import (
    CLUSTER,
    FAILED,
    IMPORTING,
    INTERRUPTED,
    RUNNING,
    SUCCEEDED,
    Run,
    RunFolder,
    outcome_of,
)

MOST_SPANS = 20
MOST_REMEMBERED = 10_000


def now_text() -> str:
    return text_of(datetime.now(UTC))


def text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class OpenRun:
    """Used by the manager's loop and by the threads that import its files. Without `seal` its own logs wait, until it is
    over, for somebody who may ask for one (`tidying.py`)."""

    def __init__(self, staging: Staging, run: Run, seal: Seal | None = None) -> None:
        self._staging = staging
        self._seal = seal
        self._lock = threading.Lock()
        self.run = run
        self.folder = RunFolder(staging.runs / run.id)
        # A file whose filing is tried again is reported again, and counts once.
        self._reported: dict[str, None] = {report["claim"]: None for report in self.folder.reports()}
        self.groups = 0
        self.group_number = 0
        self.folder.write(run)

    @property
    def in_app(self) -> bool:
        return self.run.state == RUNNING

    def change(self, **fields: Any) -> None:
        with self._lock:
            self.run = replace(self.run, **fields)
            self.folder.write(self.run)

    def begin_group(self) -> None:
        with self._lock:
            self.groups += 1

    def end_group(self) -> None:
        with self._lock:
            self.groups -= 1

    def joined(self, spans: Sequence[str]) -> None:
        """Of a program that runs for ever only the last ones are remembered here; each file's report names its own."""
        self.change(spans=(*self.run.spans, *spans)[-MOST_SPANS:])

    def app_ended(self, exit_code: int | None, error: str | None = None) -> None:
        self.keep_logs()
        self.change(state=IMPORTING, exit_code=exit_code, error=error or self.run.error)

    def keep_logs(self, least_bytes: int = 0) -> None:
        """The files that the program wrote itself; while it runs only those that have grown long."""
        try:
            with suppress(FileNotFoundError):
                gather_own_logs(self._staging.log, self.folder.own_logs, least_bytes)
            if self._seal is not None and self.folder.has_own_logs:
                seal_logs(self.folder.own_logs, self.folder.sealed_own_logs, self._seal)
        except (MillraceError, OSError) as failed:
            # What a program calls its logs, and does to them, holds up no run.
            observe("trouble", kind="client_app", tenant=self._staging.tenant, error=f"Logs are not kept: {failed}")

    def add_report(self, report: dict[str, Any]) -> None:
        with self._lock:
            self.folder.add_reports([report])
            if report["claim"] in self._reported:
                return
            self._reported[report["claim"]] = None
            if len(self._reported) > MOST_REMEMBERED:
                self._reported.pop(next(iter(self._reported)))
            outcome = outcome_of(report)
            files = {**self.run.files, outcome: self.run.files[outcome] + 1}
            rows = {name: count + report["rows"][name] for name, count in self.run.rows.items()}
            self.run = replace(self.run, files=files, rows=rows)
            self.folder.write(self.run)

    def close(self) -> None:
        """All its files are where they belong. What was cut off by a crash or stopped by the platform is not the program's
        failure; what could not be begun has an error and no code."""
        code, error = self.run.exit_code, self.run.error
        cut_off = (code is None) != (error is not None)
        state = INTERRUPTED if cut_off else SUCCEEDED if code == 0 else FAILED
        ended = replace(self.run, state=state, ended_at=now_text())
        # Told before it is over: a run that is over is never looked at again. Told twice, it is one event.
        self._tell(ended)
        reach("manage_after_told")
        self.change(state=state, ended_at=ended.ended_at)

    def tell_start(self) -> None:
        self._tell(self.run)

    def _tell(self, run: Run) -> None:
        # This machine does not hear when a program on Kubernetes starts and ends.
        if run.cause != CLUSTER:
            AppNews(self._staging.home).put(note_of(run))
