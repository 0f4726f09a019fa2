"""The two ingestion managers in one loop: the platform's agreements in, programs run and their files imported out.

One thread decides and looks after processes; imports have threads of their own, so that no tenant waits for another's."""

import os
import select
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from millrace.client import Millrace
from millrace.exchange.app_folders import AppFolders, Staging, app_slug
from millrace.exchange.apps import AppsReport
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles, keyring_of
from millrace.manage.app_runner import AppRunner
from millrace.manage.confinement import possible_confinement
from millrace.manage.limits import Limiter
from millrace.manage.poll_timer import PollTimer
from millrace.manage.tidying import seal_left_logs, tidy
from millrace.manage.tools import Tools
from millrace.manage.watching import Watcher
from millrace.model.agreement import THE_APP, Agreement, parse_agreement
from millrace.model.errors import MillraceError
from millrace.observe import log, observe
from millrace.settings import AppSettings, KmsSettings
from millrace.stopping import StopRequest

REFRESH_SECONDS = 1.0
# Of the time, at most so much is spent on asking: thousands of agreements are read less often.
REFRESH_SHARE = 0.05
MOST_PAUSE_SECONDS = 10.0
BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
STATUS_SECONDS = 1.0
TIDY_SECONDS, LOG_SECONDS = 600.0, 60.0
# Threads that mostly wait: a tenant whose sinks are away keeps a few of them for as long.
WORKERS = 256
STOP_SECONDS = 8.0


class IngestionManagers:
    def __init__(self, home: Home, connection: Millrace, settings: AppSettings, kms: KmsSettings) -> None:
        self._home = home
        self._apps = connection.apps
        self._waking, self._wake_end = os.pipe()
        os.set_blocking(self._waking, False)
        os.set_blocking(self._wake_end, False)
        confinement = possible_confinement(home, settings)
        self._tools = Tools(
            home,
            connection,
            confinement,
            Limiter(is_confined=confinement.own_view, own_user=confinement.own_user, settings=settings),
            Watcher(),
            ThreadPoolExecutor(WORKERS, "import"),
            ThreadPoolExecutor(WORKERS, "send"),
            timedelta(seconds=settings.longest_run_seconds),
            partial(keyring_of, KeyFiles(home), kms),
            self.wake,
        )
        self._tended: dict[str, AppRunner] = {}
        self._tidying: Future[None] | None = None
        self._refreshing = PollTimer(REFRESH_SECONDS)
        self._chores = (
            (PollTimer(STATUS_SECONDS), self._tell),
            (PollTimer(TIDY_SECONDS), self._tidy),
            (PollTimer(LOG_SECONDS), self._rotate_logs),
        )
        if confinement.warning:
            log("app_confinement", warning=confinement.warning)

    def wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_end, b"!")

    def run(self, stop_request: StopRequest) -> None:
        """Until it is told to stop; then every program is ended, and what is under way waits for the next start."""
        self._take_up_left_overs()
        while not stop_request.is_made():
            if self._refreshing.is_due():
                self._refresh()
                self._refreshing.pause(REFRESH_SHARE, MOST_PAUSE_SECONDS)
            self._look()
            for timer, work in self._chores:
                if timer.is_due():
                    work()
            self._rest(stop_request)
        self._shut_down()

    def _take_up_left_overs(self) -> None:
        """Programs whose files were on their way, whether their tenants have them still or not."""
        handled = self._home.handled("any").parent
        for tenant in sorted(path.name for path in handled.iterdir()) if handled.is_dir() else ():
            for staging in AppFolders(self._home).all(tenant):
                if staging.taken.is_dir() and any(staging.taken.iterdir()):
                    with _apart(tenant):
                        self._tended[staging.slug] = AppRunner(self._tools, staging)

    def _refresh(self) -> None:
        """A platform that does not answer now changes nothing."""
        try:
            declared = {app_slug(item["tenant"], item.get("app", THE_APP)): item for item in self._apps.list()["items"]}
        except MillraceError as failed:
            log("agreements_unknown", error=str(failed))
            return
        for slug in declared.keys() - self._tended.keys():
            item = declared[slug]
            with _apart(item["tenant"]):
                staging = Staging(self._home, item["tenant"], item.get("app", THE_APP))
                self._tended[slug] = AppRunner(self._tools, staging)
        for slug, tended in list(self._tended.items()):
            self._agree(slug, tended, declared.get(slug))

    def _agree(self, slug: str, tended: AppRunner, item: dict[str, Any] | None) -> None:
        tenant = tended.staging.tenant
        try:
            agreement = None if item is None else parse_agreement({"client": tenant, **item["agreement"]})[0]
        except MillraceError as refused:
            log("agreement_unreadable", tenant=tenant, error=str(refused))
            return
        if item is None:
            tended.agree(None, 0)
        else:
            tended.agree(agreement, item["revision"], item.get("tables", ()))
        if agreement is None and tended.is_idle:
            tended.leave()
            del self._tended[slug]

    def _look(self) -> None:
        for slug, seen in self._tools.watcher.read():
            self._tended[slug].note(seen)
        asked = self._tools.apps.asked()
        for tended in self._tended.values():
            with _apart(tended.staging.tenant):
                if tended.has_to_be_looked_at(now := datetime.now(UTC), asked):
                    tended.tick(now)

    def _rest(self, stop_request: StopRequest) -> None:
        busy = any(tended.is_busy for tended in self._tended.values())
        heard = [
            self._waking,
            stop_request.descriptor,
            *([self._tools.watcher.descriptor] if self._tools.watcher.descriptor else []),
        ]
        ready, _, _ = select.select(heard, [], [], BUSY_SECONDS if busy else IDLE_SECONDS)
        if self._waking in ready:
            with suppress(BlockingIOError):
                os.read(self._waking, 4096)

    def _tell(self) -> None:
        self._tools.apps.report(
            AppsReport(
                confinement=self._tools.confinement.as_json(),
                limits=self._tools.limiter.means,
                watching=self._tools.watcher.means,
                tenants={slug: tended.status() for slug, tended in self._tended.items()},
            )
        )

    def _rotate_logs(self) -> None:
        for tended in self._tended.values():
            with _apart(tended.staging.tenant):
                tended.rotate_logs()

    def _tidy(self) -> None:
        """In a thread of its own, which may wait for the keeper of the keys; one at a time."""
        if self._tidying is None or self._tidying.done():
            agreed = [(one.staging, one.agreement) for one in self._tended.values() if one.agreement is not None]
            self._tidying = self._tools.workers.submit(self._tidy_all, agreed)

    def _tidy_all(self, agreed: Sequence[tuple[Staging, Agreement]]) -> None:
        for staging, agreement in agreed:
            if self._tools.stopping.is_set():
                return
            with _apart(staging.tenant):
                gone = tidy(staging, agreement.data_retention_days)
                if gone:
                    log("app_files_expired", tenant=staging.tenant, files=gone)
            with _apart(staging.tenant):
                seal_left_logs(staging, self._tools.keys)

    def _shut_down(self) -> None:
        self._tools.stopping.set()
        for tended in self._tended.values():
            tended.stop()
        ends = time.monotonic() + STOP_SECONDS
        running = list(self._tended.values())
        while running:
            running = [tended for tended in running if not tended.has_stopped(by_force=time.monotonic() > ends)]
            time.sleep(0.02)
        self._tools.apps.withdraw()


@contextmanager
def _apart(tenant: str) -> Iterator[None]:
    """One tenant's trouble is not another's; what is to be done is still to be done at the next look."""
    try:
        yield
    except Exception as error:
        observe("trouble", kind="client_app", tenant=tenant, error=f"{type(error).__name__}: {error}"[:1000])
