"""One program of a tenant, tended: its agreement in, a process that runs when it should out. When that is is decided in
`deciding.py`; what becomes of its files is the collector's business."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from millrace.exchange.app_folders import Staging
from millrace.manage.collecting import Collector
from millrace.manage.completion import Health, Seen
from millrace.manage.deciding import WELL_AFTER, Going, Skip, Standing, Start, Stop, decide, next_due
from millrace.manage.input_handover import InputHandover, Ready
from millrace.manage.launching import launch
from millrace.manage.logs import LOG_BYTES
from millrace.manage.openrun import OpenRun, text_of
from millrace.manage.poll_timer import LOOK_SECONDS, PollTimer, is_elsewhere, runs_elsewhere
from millrace.manage.running import AppReplicas
from millrace.manage.schedule_position import SchedulePosition
from millrace.manage.tools import Tools
from millrace.model.agreement import BATCH, STREAM, Agreement
from millrace.model.errors import MillraceError
from millrace.model.names import new_id
from millrace.observe import log, observe
from millrace.staging.dividing import divide, return_claims
from millrace.staging.runs import CLUSTER, RUNNING, Run
from millrace.staging.users import owner_of


class AppRunner:
    """Used by the loop's thread alone."""

    def __init__(self, tools: Tools, staging: Staging) -> None:
        self._tools = tools
        self.staging = staging
        self.staging.make(owner_of(staging.tenant))
        self.agreement: Agreement | None = None
        self._revision = 0
        self._tables: Sequence[str] = ()
        self._process: AppReplicas | None = None
        self._may_have_claims = True
        self._endings = 0
        self._ended_at: datetime | None = None
        self._ended_well = False
        self._looked_at: Standing | None = None
        self._next_due: datetime | None = None
        self._looking = PollTimer(LOOK_SECONDS)
        self._followed = SchedulePosition(self.staging.schedule)
        self._collector = Collector(tools, self.staging)
        self._giving = InputHandover(tools, self.staging)

    @property
    def is_idle(self) -> bool:
        return not self._collector.runs and not self._giving.is_under_way

    @property
    def is_busy(self) -> bool:
        """Whether it has to be looked at soon."""
        if self._giving.is_under_way or (self._seals_inputs and self._giving.may_be_left):
            return True
        return bool(self._collector.outbox) or any(
            run.groups or not is_elsewhere(run) for run in self._collector.runs.values()
        )

    def agree(self, agreement: Agreement | None, revision: int, tables: Sequence[str] = ()) -> None:
        self.agreement, self._revision, self._tables = agreement, revision, tables
        self._followed.follow(agreement.schedule if agreement else None, datetime.now(UTC))

    def has_to_be_looked_at(self, now: datetime, asked: Collection[str]) -> bool:
        """Most of those that wait for their moment need no look before it."""
        if self.is_busy or self.staging.slug in asked or self._looked_at is None:
            return True
        standing = self._looked_at
        same = (standing.revision, standing.mode) == (self._revision, self._mode)
        return not same or standing.mode != BATCH or (self._next_due is not None and now >= self._next_due)

    def note(self, seen: Seen) -> None:
        self._collector.outbox.note(seen)

    def tick(self, now: datetime) -> None:
        """One look at everything: the program, its files, its schedule."""
        self._look_after(now)
        self._look_elsewhere(now)
        self._collect()
        self._collector.close_runs(is_running=self._process is not None)
        self._return_claims()
        self._look_after_inputs()
        actions = decide(self.standing(), now)
        if not any(isinstance(action, Start) for action in actions):
            self._giving.forget_start()
        for action in actions:
            if isinstance(action, Start):
                if (ready := self._giving.for_start(is_sealed=self._is_sealed)) is not None:
                    self._start(action, now, ready)
            elif isinstance(action, Skip):
                log("app_runs_skipped", tenant=self.staging.tenant, app=self.staging.app, count=action.count)
                self._followed.set(action.handled_until)
            elif self._process is not None:
                self._stop(action)
        self._looked_at = self.standing()
        self._next_due = next_due(self._looked_at)

    @property
    def _mode(self) -> str | None:
        app = self.agreement.app if self.agreement else None
        return app.mode if app is not None and app.runs_here else None

    @property
    def _is_sealed(self) -> bool:
        return self.agreement is not None and self.agreement.encryption

    @property
    def _seals_inputs(self) -> bool:
        """While no program runs."""
        return self._is_sealed and self._mode == BATCH

    def standing(self) -> Standing:
        going = None
        if self._collector.current is not None and (
            self._process is not None or self._collector.current.run.mode == BATCH
        ):
            run = self._collector.current.run
            stopping = self._process is not None and self._process.is_stopping
            going = Going(run.revision, datetime.fromisoformat(run.started_at), self._process is not None, stopping)
        return Standing(
            self._revision,
            self._mode,
            self.agreement.schedule if self.agreement else None,
            self._followed.until,
            going,
            self._tools.apps.is_asked(self.staging.tenant, self.staging.app),
            self._endings,
            self._ended_at,
            self._tools.longest_run,
        )

    def status(self) -> dict[str, Any]:
        standing, due = self.standing(), self._next_due
        run = None if self._collector.current is None else self._collector.current.run
        pausing = standing.mode == STREAM and self._process is None
        state = "none" if standing.mode is None else "pausing" if pausing else "waiting"
        return {
            "state": run.state if run is not None and not (pausing and run.state != RUNNING) else state,
            "run": None if run is None else run.id,
            "next_run_at": None if due is None else text_of(due),
            "endings": self._endings,
            "open_runs": len(self._collector.runs),
        }

    def rotate_logs(self) -> None:
        if self._process is not None and self._collector.current is not None:
            self._collector.current.keep_logs(LOG_BYTES)

    def leave(self) -> None:
        self._tools.watcher.forget(self.staging.slug)
        self._tools.limiter.release(self.staging.slug)

    def stop(self) -> None:
        """The platform goes down: the program is asked to end, its files are claimed for the next time."""
        current = self._collector.current
        if self._process is not None and self._process.stop() and current is not None:
            current.change(error="The platform was stopped.")

    def has_stopped(self, *, by_force: bool) -> bool:
        if self._process is not None and by_force:
            self._process.kill()
        self._look_after(datetime.now(UTC))
        return self._process is None

    def _look_after(self, now: datetime) -> None:
        if self._process is None or self._collector.current is None:
            return
        code = self._process.poll()
        if code is None:
            return
        started = datetime.fromisoformat(self._collector.current.run.started_at)
        self._endings = 1 if now - started > WELL_AFTER else self._endings + 1
        self._process, self._ended_at, self._ended_well = None, now, code == 0
        self._return_claims()
        self._giving.note_end()
        self._collector.look()
        self._collector.current.app_ended(code)
        log(
            "app_ended",
            tenant=self.staging.tenant,
            app=self.staging.app,
            run=self._collector.current.run.id,
            exit_code=code,
        )
        # What is finished, or broken, by this end is told apart now, before anything else can happen to it.
        self._collect()

    def _look_elsewhere(self, now: datetime) -> None:
        """Where the program runs on Kubernetes: a run is open for its files, anew when the agreement has changed."""
        elsewhere, current = runs_elsewhere(self.agreement), self._collector.current
        if elsewhere and current is None:
            run = Run(new_id("run"), self.staging.tenant, STREAM, RUNNING, CLUSTER, self._revision, text_of(now))
            self._collector.open(replace(run, sealed=self._is_sealed, app=self.staging.app))
        elif current is not None and self._is_outdated(current):
            current.app_ended(0)
        if elsewhere and self._looking.is_due():
            self.staging.make(owner_of(self.staging.tenant), shared=True, tables=self._tables)
            self._divide_elsewhere()
            self._collector.look()

    def _return_claims(self) -> None:
        """Of replicas that have ended, or that died with the managers. A program that put something else in the place of
        `in` holds up no run."""
        if self._may_have_claims and self._process is None and not runs_elsewhere(self.agreement):
            try:
                stuck = return_claims(self.staging)
            except OSError as failed:
                stuck = [str(failed)]
            self._may_have_claims = bool(stuck)
            if stuck:
                why = f"Claimed files cannot return to `in`: {stuck[0]}"
                observe("trouble", kind="client_app", tenant=self.staging.tenant, error=why)

    def _divide_elsewhere(self) -> None:
        """Replicas of a batch on Kubernetes each have a folder, in which their next run finds what the last one left."""
        app = self.agreement.app if self.agreement else None
        if app is not None and app.mode == BATCH and app.replicas > 1:
            divide(self.staging, app.replicas, owner_of(self.staging.tenant), shared=True)
        else:
            return_claims(self.staging)

    def _is_outdated(self, run: OpenRun) -> bool:
        is_current = runs_elsewhere(self.agreement) and run.run.revision == self._revision
        return is_elsewhere(run) and run.in_app and not is_current

    def _collect(self) -> None:
        current = self._collector.current
        if current is not None:
            ended = None if self._ended_at is None else self._ended_at.timestamp()
            is_batch = current.run.mode == BATCH
            health = Health(self._process is not None, is_batch, ended, self._ended_well, is_elsewhere(current))
            self._collector.collect(health)

    def _look_after_inputs(self) -> None:
        if self._process is not None or runs_elsewhere(self.agreement):
            self._giving.while_running()
        elif self._seals_inputs:
            self._giving.behind_run()

    def _start(self, action: Start, now: datetime, ready: Ready) -> None:
        agreement, tenant = self.agreement, self.staging.tenant
        assert agreement is not None
        assert agreement.app is not None
        app = agreement.app
        if action.handled_until is not None:
            self._followed.set(action.handled_until)
        self._tools.apps.clear_request(tenant, app.name)
        due = None if action.due_at is None else text_of(action.due_at)
        run = Run(new_id("run"), tenant, app.mode, RUNNING, action.cause, self._revision, text_of(now), due)
        unready = ready.exception()
        seal = None if unready else ready.result()
        run = replace(run, sealed=self._is_sealed, given_at=text_of(self._giving.given_at), app=app.name)
        opened = self._collector.open(run, seal)
        if unready is not None:
            return self._could_not_start(opened, now, unready)
        try:
            self._may_have_claims = True
            self._process = launch(self._tools, self.staging, agreement, opened, seal)
        except (MillraceError, OSError) as failed:
            return self._could_not_start(opened, now, failed)
        opened.tell_start()
        log("app_started", tenant=tenant, app=app.name, run=run.id, cause=action.cause)

    def _could_not_start(self, run: OpenRun, now: datetime, why: BaseException) -> None:
        self._endings, self._ended_at, self._ended_well = self._endings + 1, now, False
        self._giving.note_end()
        run.app_ended(None, f"It could not be started: {str(why).rstrip('.')}.")

    def _stop(self, action: Stop) -> None:
        assert self._process is not None
        assert self._collector.current is not None
        log(
            "app_stopped",
            tenant=self.staging.tenant,
            app=self.staging.app,
            run=self._collector.current.run.id,
            why=action.why,
        )
        self._collector.current.change(error=action.why)
        self._process.stop()
