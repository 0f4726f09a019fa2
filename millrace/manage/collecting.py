"""What comes out of one tenant's program: sightings in, claims, groups and ended runs out, over crashes too.

Runs are open from their start until the last of their files is where it belongs."""

from collections.abc import Sequence
from dataclasses import replace

from millrace.exchange.app_folders import Staging
from millrace.manage.claiming import Claim, open_claims, still_open, take
from millrace.manage.completion import Health
from millrace.manage.importing import ClaimGroup, Importer, Report, fault_of
from millrace.manage.kept_files import KeptFiles
from millrace.manage.openrun import OpenRun, now_text
from millrace.manage.outbox import Outbox
from millrace.manage.tools import Tools
from millrace.model.agreement import BATCH
from millrace.model.errors import Clash
from millrace.model.names import new_id
from millrace.observe import log, observe
from millrace.seal.cipher import Seal
from millrace.staging.runs import RUNNING, Run, run_folders

MOST_GROUPS = 4
MOST_FILES = 256
RETRY_PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0)


class Collector:
    """Everything but `_on_report` and `_bring` happens in the loop's thread. `current`: the run that new files belong to."""

    def __init__(self, tools: Tools, staging: Staging) -> None:
        self._tools = tools
        self._staging = staging
        self.outbox = Outbox(staging.outbox)
        self._kept = KeptFiles(staging, tools.limiter.kept_bytes)
        self._importer = Importer(tools, staging, self._on_report)
        self._claims: list[Claim] = []
        self.runs: dict[str, OpenRun] = {}
        self.current: OpenRun | None = None
        self._recover()
        for _, seen in tools.watcher.follow(staging.slug, staging.outbox):
            self.outbox.note(seen)

    def look(self) -> None:
        for _, seen in self._tools.watcher.look(self._staging.slug):
            self.outbox.note(seen)

    def open(self, run: Run, seal: Seal | None = None) -> OpenRun:
        self.current = self.runs[run.id] = OpenRun(self._staging, run, seal)
        return self.current

    def collect(self, health: Health) -> None:
        """Takes what is finished: of a stream in groups as it comes, of a batch run all together when it has ended."""
        current = self.current
        if current is None:
            return
        if self.outbox.has_to_look_again():
            self.look()
        room = MOST_FILES if health.is_batch or current.groups < MOST_GROUPS else 0
        # Measured only where something waits to be taken: most tenants have nothing at most times.
        is_full = bool(self.outbox) and self._kept.is_full()
        finished, broken = ([], []) if is_full else self.outbox.ripe(health, room)
        if health.is_batch:
            self._claims += self._all_taken(finished, broken, current, current.run.id)
            if not health.is_running and self._claims and not finished:
                claims, self._claims = self._claims, []
                self._hand_over(current, current.run.id, claims)
        elif finished or broken:
            current.group_number += 1
            span = f"{current.run.id}.{current.group_number}"
            self._hand_over(current, span, self._all_taken(finished, broken, current, span))

    def close_runs(self, *, is_running: bool) -> None:
        for run in list(self.runs.values()):
            is_current = run is self.current
            if run.in_app or run.groups or (is_current and (self._claims or is_running)):
                continue
            run.close()
            del self.runs[run.run.id]
            if is_current:
                self.current = None

    def _all_taken(self, finished: Sequence[str], broken: Sequence[str], run: OpenRun, span: str) -> list[Claim]:
        half_written = Clash(
            f"The program ended with code {run.run.exit_code} while it may have been writing the file.",
            remedy="Write under a name that begins with a dot, and rename the file when it is whole.",
            code="half_written",
        )
        return self._taken(finished, run, span) + self._taken(broken, run, span, fault_of(half_written))

    def _taken(self, paths: Sequence[str], run: OpenRun, span: str, fault: dict[str, str] | None = None) -> list[Claim]:
        claims: list[Claim] = []
        try:
            for path in paths:
                data_key = new_id("fil") if run.run.sealed else ""
                claim = take(self._staging, path, run.run.id, span, data_key=data_key, fault=fault)
                claims += [] if claim is None else [claim]
        except OSError as failed:
            observe("trouble", kind="client_app", tenant=self._staging.tenant, error=str(failed))
            self.outbox.miss()
        return claims

    def _hand_over(self, run: OpenRun, span: str, claims: Sequence[Claim], *, is_new: bool = True) -> None:
        if claims:
            run.begin_group()
            group = ClaimGroup(run.run.id, span, tuple(claims), self._importer.turns.take_number(), is_new)
            self._tools.workers.submit(self._bring, run, group)

    def _bring(self, run: OpenRun, group: ClaimGroup) -> None:
        """In a thread of its own, until every file of the group is where it belongs."""
        tries = 0
        while not self._tools.stopping.is_set():
            try:
                run.joined(self._importer.bring(group))
                run.end_group()
                return self._tools.wake()
            except Exception as failed:
                # The files are safe where they are, and those behind them wait: whatever it is, it must be tried again.
                why = f"{type(failed).__name__}: {failed}"[:500]
                log("app_import_waits", tenant=self._staging.tenant, run=group.run, error=why)
            self._tools.stopping.wait(RETRY_PAUSES[min(tries, len(RETRY_PAUSES) - 1)])
            tries += 1
            group = replace(group, claims=still_open(self._staging, group.claims), is_new=False)

    def _on_report(self, run_id: str, report: Report) -> None:
        run = self.runs.get(run_id)
        if run is not None:
            run.add_report(report)

    def _recover(self) -> None:
        """What a crash left behind: runs that were cut off, and files on their way."""
        for folder in run_folders(self._staging):
            run = folder.read()
            if not run.is_over:
                run = folder.recounted(run)
                self.runs[run.id] = OpenRun(self._staging, run)
                if run.state == RUNNING:
                    # The managers may have been killed before they told it; told again, it is the same event.
                    self.runs[run.id].tell_start()
                self.runs[run.id].app_ended(run.exit_code)
        groups: dict[tuple[str, str], list[Claim]] = {}
        for claim in open_claims(self._staging):
            groups.setdefault((claim.run, claim.span), []).append(claim)
        for (run_id, span), claims in groups.items():
            self._hand_over(self._run_of(run_id), span, claims, is_new=False)

    def _run_of(self, run_id: str) -> OpenRun:
        """A record of it is made if that is all that is missing."""
        if run_id not in self.runs:
            lost = Run(run_id, self._staging.tenant, BATCH, RUNNING, "recovery", 0, now_text(), app=self._staging.app)
            self.runs[run_id] = OpenRun(self._staging, lost)
            self.runs[run_id].app_ended(None)
        return self.runs[run_id]
