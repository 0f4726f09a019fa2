"""One tenant's program, tended: its agreement in, runs and imports out. What to do is decided in `deciding.py` and
`ripening.py`; here it is done, and what came of it is remembered."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace.manage.claiming import Claim, open_claims, still_open, take
from millrace.manage.deciding import BATCH, STREAM, WELL_AFTER, Going, Skip, Standing, Start, Stop, decide, next_due
from millrace.manage.elsewhere import CLUSTER, Looking, is_elsewhere, runs_elsewhere
from millrace.manage.following import Followed
from millrace.manage.importing import Group, Importer, Report
from millrace.manage.logs import LOG_BYTES
from millrace.manage.openrun import OpenRun, now_text, text_of
from millrace.manage.outbox import Outbox
from millrace.manage.ripening import Health, Seen
from millrace.manage.running import AppProcess
from millrace.manage.tools import Tools
from millrace.model.agreement import Agreement
from millrace.model.errors import Clash, MillraceError
from millrace.model.names import new_id
from millrace.observe import log
from millrace.staging.folders import Staging
from millrace.staging.runs import RUNNING, Run, run_folders
from millrace.staging.users import owner_of

MOST_GROUPS = 4
MOST_FILES = 256
RETRY_PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0)


class Tended:
    """Everything but `_on_report` and `_bring` happens in the loop's thread."""

    def __init__(self, tools: Tools, tenant: str) -> None:
        self._tools = tools
        self.staging = Staging(tools.home, tenant)
        self.staging.make(owner_of(tenant))
        self.agreement: Agreement | None = None
        self._revision = 0
        self._outbox = Outbox(self.staging.outbox)
        self._importer = Importer(tools.connection, tools.senders, self.staging, self._on_report)
        self._process: AppProcess | None = None
        self._current: OpenRun | None = None
        self._claims: list[Claim] = []
        self._endings = 0
        self._ended_at: datetime | None = None
        self._ended_well = False
        self._runs: dict[str, OpenRun] = {}
        self._looked_at: Standing | None = None
        self._next_due: datetime | None = None
        self._looking = Looking()
        self._followed = Followed(self.staging.schedule)
        self._recover()
        for _, seen in tools.watcher.follow(tenant, self.staging.outbox):
            self._outbox.note(seen)

    @property
    def is_idle(self) -> bool:
        return not self._runs

    @property
    def is_busy(self) -> bool:
        """Whether it has to be looked at soon."""
        return bool(self._outbox) or any(run.groups or not is_elsewhere(run) for run in self._runs.values())

    def agree(self, agreement: Agreement | None, revision: int) -> None:
        self.agreement, self._revision = agreement, revision

    def has_to_be_looked_at(self, now: datetime, asked: Collection[str]) -> bool:
        """Most of those that wait for their moment need no look before it."""
        if self.is_busy or self.staging.tenant in asked or self._looked_at is None:
            return True
        standing = self._looked_at
        same = (standing.revision, standing.mode) == (self._revision, self._mode)
        return not same or standing.mode != BATCH or (self._next_due is not None and now >= self._next_due)

    def note(self, seen: Seen) -> None:
        self._outbox.note(seen)

    def tick(self, now: datetime) -> None:
        """One look at everything: the program, its files, its schedule."""
        self._look_after(now)
        self._look_elsewhere(now)
        self._collect()
        self._close_runs()
        for action in decide(self.standing(), now):
            if isinstance(action, Start):
                self._start(action, now)
            elif isinstance(action, Skip):
                log("app_runs_skipped", tenant=self.staging.tenant, count=action.count)
                self._followed.set(action.handled_until)
            elif self._process is not None:
                self._stop(action)
        self._looked_at = self.standing()
        self._next_due = next_due(self._looked_at)

    @property
    def _mode(self) -> str | None:
        app = self.agreement.app if self.agreement else None
        return app.mode if app is not None and app.runs_here else None

    def standing(self) -> Standing:
        going = None
        if self._current is not None and (self._process is not None or self._current.run.mode == BATCH):
            run = self._current.run
            stopping = self._process is not None and self._process.is_stopping
            going = Going(run.revision, datetime.fromisoformat(run.started_at), self._process is not None, stopping)
        return Standing(
            self.staging.tenant,
            self._revision,
            self._mode,
            self.agreement.schedule if self.agreement else None,
            self._followed.until,
            going,
            self._asked.exists(),
            self._endings,
            self._ended_at,
            self._tools.longest_run,
        )

    def status(self) -> dict[str, Any]:
        standing, due = self.standing(), self._next_due
        run = None if self._current is None else self._current.run
        pausing = standing.mode == STREAM and self._process is None
        state = "none" if standing.mode is None else "pausing" if pausing else "waiting"
        return {
            "state": run.state if run is not None and not (pausing and run.state != RUNNING) else state,
            "run": None if run is None else run.id,
            "next_run_at": None if due is None else text_of(due),
            "endings": self._endings,
            "open_runs": len(self._runs),
        }

    def rotate_logs(self) -> None:
        if self._process is not None and self._current is not None:
            self._current.keep_logs(LOG_BYTES)

    def leave(self) -> None:
        self._tools.watcher.forget(self.staging.tenant)
        self._tools.limiter.release(self.staging.tenant)

    def stop(self) -> None:
        """The platform goes down: the program is asked to end, its files are claimed for the next time."""
        if self._process is not None:
            self._process.stop()

    def has_stopped(self, *, by_force: bool) -> bool:
        if self._process is not None and by_force:
            self._process.kill()
        self._look_after(datetime.now(UTC))
        return self._process is None

    def _look_after(self, now: datetime) -> None:
        if self._process is None or self._current is None:
            return
        code = self._process.poll()
        if code is None:
            return
        started = datetime.fromisoformat(self._current.run.started_at)
        self._endings = 1 if now - started > WELL_AFTER else self._endings + 1
        self._process, self._ended_at, self._ended_well = None, now, code == 0
        for _, seen in self._tools.watcher.look(self.staging.tenant):
            self._outbox.note(seen)
        self._current.app_ended(code)
        log("app_ended", tenant=self.staging.tenant, run=self._current.run.id, exit_code=code)
        # What is finished, or broken, by this end is told apart now, before anything else can happen to it.
        self._collect()

    def _look_elsewhere(self, now: datetime) -> None:
        """Where the program runs on Kubernetes: a run is open for its files, anew when the agreement has changed."""
        elsewhere, current = runs_elsewhere(self.agreement), self._current
        if elsewhere and current is None:
            run = Run(new_id("run"), self.staging.tenant, STREAM, RUNNING, CLUSTER, self._revision, text_of(now))
            self._current = self._runs[run.id] = OpenRun(self.staging, run)
        elif current is not None and self._is_outdated(current):
            current.app_ended(0)
        if elsewhere and self._looking.is_due(now):
            for _, seen in self._tools.watcher.look(self.staging.tenant):
                self._outbox.note(seen)

    def _is_outdated(self, run: OpenRun) -> bool:
        is_current = runs_elsewhere(self.agreement) and run.run.revision == self._revision
        return is_elsewhere(run) and run.in_app and not is_current

    def _collect(self) -> None:
        current = self._current
        if current is None:
            return
        is_batch = current.run.mode == BATCH
        room = MOST_FILES if is_batch or current.groups < MOST_GROUPS else 0
        ended = None if self._ended_at is None else self._ended_at.timestamp()
        health = Health(self._process is not None, is_batch, ended, self._ended_well, is_elsewhere(current))
        finished, broken = self._outbox.ripe(health, room)
        for path in broken:
            self._refuse(path, current)
        if not is_batch and finished:
            current.group_number += 1
            span = f"{current.run.id}.{current.group_number}"
            self._hand_over(current, span, self._taken(finished, current, span))
        elif is_batch:
            self._claims += self._taken(finished, current, current.run.id)
            if self._process is None and self._claims and not finished:
                claims, self._claims = tuple(self._claims), []
                self._hand_over(current, current.run.id, claims)

    def _taken(self, paths: list[str], run: OpenRun, span: str) -> tuple[Claim, ...]:
        claims = (take(self.staging, path, run.run.id, span) for path in paths)
        return tuple(claim for claim in claims if claim is not None)

    def _refuse(self, path: str, run: OpenRun) -> None:
        claim = take(self.staging, path, run.run.id, run.run.id)
        if claim is not None:
            why = Clash(
                f"The program ended with code {run.run.exit_code} while it may have been writing the file.",
                remedy="Write under a name that begins with a dot, and rename the file when it is whole.",
                code="half_written",
            )
            self._importer.refuse(claim, why)

    def _hand_over(self, run: OpenRun, span: str, claims: tuple[Claim, ...], *, is_new: bool = True) -> None:
        if claims:
            run.begin_group()
            group = Group(run.run.id, span, claims, self._importer.turns.take_number(), is_new)
            self._tools.workers.submit(self._bring, run, group)

    def _bring(self, run: OpenRun, group: Group) -> None:
        """In a thread of its own, until every file of the group is where it belongs."""
        tries = 0
        while not self._tools.stopping.is_set():
            try:
                run.joined(self._importer.bring(group))
                run.end_group()
                return self._tools.wake()
            except (MillraceError, OSError) as failed:
                log("app_import_waits", tenant=self.staging.tenant, run=group.run, error=str(failed))
            self._tools.stopping.wait(RETRY_PAUSES[min(tries, len(RETRY_PAUSES) - 1)])
            tries += 1
            group = replace(group, claims=still_open(self.staging, group.claims), is_new=False)

    def _on_report(self, run_id: str, report: Report) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            run.add_report(report)

    def _close_runs(self) -> None:
        for run in list(self._runs.values()):
            is_current = run is self._current
            if run.in_app or run.groups or (is_current and (self._claims or self._process is not None)):
                continue
            run.close()
            del self._runs[run.run.id]
            if is_current:
                self._current = None

    def _start(self, action: Start, now: datetime) -> None:
        agreement, tenant = self.agreement, self.staging.tenant
        assert agreement is not None
        assert agreement.app is not None
        app, confinement = agreement.app, self._tools.confinement
        if action.handled_until is not None:
            self._followed.set(action.handled_until)
        self._asked.unlink(missing_ok=True)
        due = None if action.due_at is None else text_of(action.due_at)
        run = Run(new_id("run"), tenant, app.mode, RUNNING, action.cause, self._revision, text_of(now), due)
        self._current = self._runs[run.id] = OpenRun(self.staging, run)
        try:
            self.staging.make(owner_of(tenant))
            limits = self._tools.limiter.limits(tenant, agreement.resources.limits)
            self._current.change(confinement={**confinement.as_json(), "limits": limits.means})
            order = confinement.order(self.staging, app.command, app.env, limits)
            self._process = AppProcess(self._current.folder, order)
        except OSError as failed:
            self._endings, self._ended_at, self._ended_well = self._endings + 1, now, False
            self._current.app_ended(None, f"It could not be started: {failed}.")
        log("app_started", tenant=tenant, run=run.id, cause=action.cause)

    def _stop(self, action: Stop) -> None:
        assert self._process is not None
        assert self._current is not None
        log("app_stopped", tenant=self.staging.tenant, run=self._current.run.id, why=action.why)
        self._current.change(error=action.why)
        self._process.stop()

    @property
    def _asked(self) -> Path:
        return self._tools.home.app_request(self.staging.tenant)

    def _recover(self) -> None:
        """What a crash left behind: runs that were cut off, and files on their way."""
        for folder in run_folders(self.staging):
            run = folder.read()
            if not run.is_over:
                self._runs[run.id] = OpenRun(self.staging, run)
                self._runs[run.id].app_ended(run.exit_code)
        groups: dict[tuple[str, str], list[Claim]] = {}
        for claim in open_claims(self.staging):
            groups.setdefault((claim.run, claim.span), []).append(claim)
        for (run_id, span), claims in groups.items():
            self._hand_over(self._run_of(run_id), span, tuple(claims), is_new=False)

    def _run_of(self, run_id: str) -> OpenRun:
        """A record of it is made if that is all that is missing."""
        if run_id not in self._runs:
            lost = Run(run_id, self.staging.tenant, BATCH, RUNNING, "recovery", 0, now_text())
            self._runs[run_id] = OpenRun(self.staging, lost)
            self._runs[run_id].app_ended(None)
        return self._runs[run_id]
