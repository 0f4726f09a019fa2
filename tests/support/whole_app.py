"""The whole REST API in this process, without Kafka and Spark: every route, its middleware and the rules of the log.

What would put bytes into Kafka fails; what is asked before that is answered as always."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient

from millrace.api.admission import Admission
from millrace.api.app import make_app
from millrace.api.documents.waiting import PlatformOutlook
from millrace.api.following.feed import EventFeed
from millrace.api.health import PlatformHealth
from millrace.api.jobs.erasing import Eraser
from millrace.api.jobs.rejected_rows import RejectedRows
from millrace.api.jobs.replaying import Replays
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.repair.amendments import Amendments
from millrace.api.rows.senders import Senders
from millrace.api.shares import Shares
from millrace.api.threads import Threads
from millrace.api.uploads.in_flight import InFlight
from millrace.api.uploads.session import UploadServices
from millrace.api.uploads.sessions import Sessions
from millrace.api.watch import Watch
from millrace.auth.audit import Audit
from millrace.exchange.queues import Queues
from millrace.formats.apart import MEMORY_BYTES
from tests.support.small_server import TOKEN, SmallPlatform, SmallServer, serving

__all__ = ["TOKEN", "AppPlatform", "served_app", "whole_app"]


class AppPlatform(SmallPlatform):
    """With every service that routes use; a subclass may bring a log that takes chunks."""

    appender: Any = None
    raw_partitions = 0
    decoder_bytes = MEMORY_BYTES
    parked_bytes = 1 << 60
    data_plane = "ok"

    def __init__(self, root: Path, private_targets: tuple[str, ...]) -> None:
        super().__init__(root, private_targets)
        self.in_flight = InFlight(4, self.quotas.weight)
        self.outlook = PlatformOutlook(
            lambda: self.data_plane, self.exchange.held_chunks.has_any, self.quotas, self.settings.api.lease_seconds
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        log: Any = self
        self.sinks = sinks = SinkWatch(
            self.exchange.places, Queues(self.store), lambda _: self.parked_bytes, lambda *_: False, _noted
        )
        admission, watch = Admission(self.store, self.quotas, sinks), Watch()
        self.shares = shares = Shares(self.settings.limits)
        shares.use()
        self.feed = feed = EventFeed(self.store, self.tokens.is_valid, self.settings.limits.followers)
        uploads = UploadServices(
            self.store, self.exchange, log, admission, self.quotas, self.sealing, self.in_flight, self.appender,
            self.raw_partitions, self.decoder_bytes, self.limits.uploads, self.limits.decoders,
        )  # fmt: skip
        self.sessions = Sessions(uploads)
        self.senders = Senders(self.store, log, admission, self.sealing, self.quotas, self.limits.senders)
        rejected = RejectedRows(self.store, self.sink_context, self.sealing)
        absent: Any = Absent()
        yield SimpleNamespace(
            store=self.store,
            exchange=self.exchange,
            queues=Queues(self.store),
            sink_context=self.sink_context,
            cluster=absent,
            op_log=log,
            sealing=self.sealing,
            tokens=self.tokens,
            audit=Audit(self.store),
            quotas=self.quotas,
            watch=watch,
            feed=feed,
            shares=shares,
            sessions=self.sessions,
            senders=self.senders,
            rejected=rejected,
            replays=Replays(rejected, log, admission, self.sealing),
            amendments=Amendments(rejected, self.sessions, uploads),
            eraser=Eraser(self.store, log, self.quotas, self.sealing, self.exchange, self.sink_context, None),
            health=PlatformHealth(absent, Threads(), absent, self.exchange, sinks, absent),
            outlook=self.outlook,
            settings=self.settings,
        )
        feed.close()
        shares.close()
        self.in_flight.stop()


def _noted(_op: Any) -> "Future[None]":
    done: Future[None] = Future()
    done.set_result(None)
    return done


class Absent:
    """A part that this application does not have: whatever is asked of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: not here")


@contextmanager
def whole_app(
    root: Path, kind: type[AppPlatform] = AppPlatform, *private_targets: str
) -> Iterator[tuple[AppPlatform, TestClient]]:
    root.mkdir(parents=True, exist_ok=True)
    platform = kind(root, private_targets)
    try:
        with TestClient(make_app(platform.running), raise_server_exceptions=False) as client:
            yield platform, client
    finally:
        platform.store.close()


@contextmanager
def served_app(root: Path, *private_targets: str, kind: type[AppPlatform] = AppPlatform) -> Iterator[SmallServer]:
    """The same on a port, for commands and clients of other processes."""
    root.mkdir(parents=True, exist_ok=True)
    platform = kind(root, private_targets)
    try:
        with serving(make_app(platform.running), root) as url:
            yield SmallServer(platform, url)
    finally:
        platform.store.close()
