"""The one place where the services of a server process are made, joined, started and stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Event

from millrace.account.accountant import Accountant
from millrace.api.admission import Admission
from millrace.api.deps import Services
from millrace.api.documents.waiting import PlatformOutlook
from millrace.api.following.feed import EventFeed
from millrace.api.health import PlatformHealth
from millrace.api.jobs.app_announcing import ANNOUNCE_SECONDS, announce_apps
from millrace.api.jobs.erasing import Eraser
from millrace.api.jobs.metering import measure_storage
from millrace.api.jobs.refreshing import Refreshing
from millrace.api.jobs.refused_secrets import note_foreign_secret
from millrace.api.jobs.rejected_rows import RejectedRows
from millrace.api.jobs.replay_sender import ReplaySender
from millrace.api.jobs.replaying import Replays
from millrace.api.jobs.retention import keep_retention
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.api.jobs.sweeping import SWEEP_SECONDS, sweep
from millrace.api.jobs.timer import Job, append_due, renew_leases, start_jobs
from millrace.api.jobs.wait_watch import WAIT_LOOK_SECONDS, WaitWatch
from millrace.api.op_keys import open_op_keys
from millrace.api.op_log import OpLog
from millrace.api.repair.amendments import Amendments
from millrace.api.rows.senders import Senders
from millrace.api.sealing import Sealing
from millrace.api.shares import Shares
from millrace.api.stalls import StallWatch, hold_threads_briefly
from millrace.api.threads import Threads
from millrace.api.uploads.in_flight import InFlight
from millrace.api.uploads.session import UploadServices
from millrace.api.uploads.sessions import Sessions
from millrace.api.watch import Watch
from millrace.auth.audit import Audit
from millrace.auth.quotas import Quotas
from millrace.auth.tokens import USES_SECONDS, Tokens
from millrace.control.controller import Controller
from millrace.control.genuine import GenuineOps
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.partitions import OpPartitions
from millrace.exchange.queues import Queues
from millrace.formats.apart import start_decoders
from millrace.lake.apart import DECODERS as LAKE_DECODERS
from millrace.model.ops import Applied
from millrace.model.usage import MEASURE_SECONDS
from millrace.notify.notifier import Notifier
from millrace.settings import Settings
from millrace.sink.context import SinkContext
from millrace.store.engine import ControlStore
from millrace.store.records import find_open_imports, is_purged
from millrace.wire.client import Appender, Cluster, Topics
from millrace.wire.signing import OpSigner
from millrace.wire.topics import RAW_INPUT, TABLE_OPS, catalogue

# What may wait in memory for the broker.
CHUNK_BYTES, OP_BYTES = 48 << 20, 16 << 20


class Server:
    """Only `__main__` and tests of the whole know it: everybody else is given the services it uses."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.exchange = open_exchange(settings.home, durable=settings.survives_power_cut)
        places = self.exchange.places
        self.sink_context = SinkContext.of(settings, places)
        self.store = ControlStore(settings.control_store(places.control_store), settings.survives_power_cut)
        self.queues = Queues(self.store)
        self.topics = Topics(cluster)
        kafka = settings.kafka
        self.topics.ensure(catalogue(kafka.raw_partitions, kafka.replication), kafka.replication)
        # Ops have a queue of their own: chunks that wait for the broker take no room from them.
        self.appender, self.op_appender = Appender(cluster, CHUNK_BYTES), Appender(cluster, OP_BYTES)
        op_partitions = OpPartitions(self.store, self.topics.partitions(TABLE_OPS))
        trust = open_op_keys(self.exchange.op_keys, cluster, self.topics)
        self.genuine = GenuineOps(trust)
        self.op_signer = OpSigner(self.op_appender, trust.keys[-1])
        self.op_log = OpLog(self.store, self.op_signer, op_partitions)
        self.tokens = Tokens(self.store, settings.limits.tokens)
        self.audit = Audit(self.store)
        self.quotas = Quotas(self.store, settings.limits)
        self.sealing = Sealing(self.exchange, settings.kms, self.quotas)
        self.sinks = SinkWatch(
            places, self.queues, self._parked_limit, self._is_awaited, self.op_log.append, self._is_purged,
            partial(note_foreign_secret, self.audit, self.sink_context),
        )  # fmt: skip
        self.admission = Admission(self.store, self.quotas, self.sinks)
        self.in_flight = InFlight(settings.spark.bulk_chunks_per_batch, self.quotas.weight, settings.limits.uploads)
        self.refreshing = Refreshing(self.store, self.op_log.append)
        self.rejected = RejectedRows(self.store, self.sink_context, self.sealing)
        self.replays = Replays(self.rejected, self.op_log, self.admission, self.sealing)
        self.replay_sender = ReplaySender(
            self.rejected, self.store, self.exchange.definitions, self.sealing, self.appender
        )
        self.notifier = Notifier(self.store, settings.api.private_targets)
        self.accountant = Accountant(self.store, cluster, self.op_signer, op_partitions, self.exchange)
        self.accountant.ops_kept_days = kafka.ops_kept_days
        self.accountant.log_key_expiry.days = kafka.streamed_rows_kept_days
        self.accountant.listen(self.in_flight.chunks.judged)
        self.threads = Threads()
        self.health = PlatformHealth(
            self.topics, self.threads, self.accountant, self.exchange, self.sinks, self.genuine
        )
        self.outlook = PlatformOutlook(
            self.health.data_plane, self.exchange.held_chunks.has_any, self.quotas, settings.api.lease_seconds
        )
        self.wait_watch = WaitWatch(self.store, self.outlook, self.op_log.append)
        self.eraser = Eraser(
            self.store, self.op_log, self.quotas, self.sealing, self.exchange, self.sink_context, kafka.ops_kept_days
        )
        for listener in (
            self.in_flight.on_applied,
            self._account,
            lambda _: self.notifier.wake(),
            self.refreshing.on_applied,
            self.replay_sender.on_applied,
        ):
            self.op_log.listen(listener)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Services]:
        """The services, while this server works. Some of them belong to the event loop that runs now."""
        self.shares = Shares(self.settings.limits)
        self.shares.use()
        self.watch = Watch()
        self.feed = EventFeed(self.store, self.tokens.is_valid, self.settings.limits.followers)
        uploads = UploadServices(
            store=self.store,
            exchange=self.exchange,
            op_log=self.op_log,
            admission=self.admission,
            quotas=self.quotas,
            sealing=self.sealing,
            in_flight=self.in_flight,
            appender=self.appender,
            raw_partitions=self.topics.partitions(RAW_INPUT),
            decoder_bytes=self.settings.api.decoder_mb << 20,
            uploads=self.settings.limits.uploads,
            decoders=self.settings.limits.decoders,
        )
        self.sessions = Sessions(uploads)
        self.amendments = Amendments(self.rejected, self.sessions, uploads)
        self.senders = Senders(
            self.store, self.op_log, self.admission, self.sealing, self.quotas, self.settings.limits.senders
        )
        hearing = (self.watch, self.feed, self.sessions, self.senders.appends)
        for listener in hearing:
            self.op_log.listen(listener.on_applied)
        hold_threads_briefly()
        watching = asyncio.create_task(StallWatch().run())
        self.start()
        self.threads.start("replays", self.replay_sender.run)
        measure = partial(measure_storage, self.store, self.exchange.tenant_files)
        start_jobs(self.threads, {"metering": (MEASURE_SECONDS, measure)})
        retention = partial(keep_retention, self.store, self.exchange, self.sink_context, self.settings.kms)
        self.threads.start("retention", retention)
        yield self
        watching.cancel()
        self.feed.close()
        self.shares.close()
        self.stop()

    def start(self, *, controller: bool = True) -> None:
        """The control plane: what turns ops into applied ops, facts into ends, and time into ops."""
        self.exchange.places.clear_spool()
        renew_leases(self.store)
        if controller:
            self.threads.start("controller", self._control)
            self.threads.start("notifier", self.notifier.run)
        self.threads.start("accountant", self.accountant.run)
        self.in_flight.threads.submit(self.refreshing.catch_up)
        self.in_flight.threads.submit(start_decoders, LAKE_DECODERS)
        api = self.settings.api
        often = min(1.0, api.lease_seconds / 4)
        jobs: dict[str, tuple[float, Job]] = {
            "timer": (often, partial(append_due, api, self.store, self.op_log, self.in_flight.at_work)),
            "sink_watch": (often, self.sinks.look),
            "app_news": (ANNOUNCE_SECONDS, partial(announce_apps, self.exchange.app_news, self.op_log.append)),
            "wait_watch": (WAIT_LOOK_SECONDS, self.wait_watch.look),
            "token_uses": (USES_SECONDS, self.tokens.note_uses),
            "quotas": (USES_SECONDS, self.quotas.write),
            "sweep": (SWEEP_SECONDS, partial(sweep, self.store, self.exchange)),
        }
        start_jobs(self.threads, jobs)

    def stop(self) -> None:
        self.threads.stop()
        self.in_flight.stop()
        self.op_log.close()
        self.op_appender.close()
        self.appender.close()
        self.audit.close()
        self.store.close()

    def _parked_limit(self, tenant: str) -> int:
        agreed = self.quotas.agreement(tenant).quotas.parked_bytes
        return self.settings.sinks.parked_bytes if agreed is None else agreed

    def _is_awaited(self, tenant: str, table: str, sink: str) -> bool:
        with self.store.read() as connection:
            return any(sink in imp.sinks for imp in find_open_imports(connection, tenant, table))

    def _is_purged(self, tenant: str, table: str) -> bool:
        with self.store.read() as connection:
            return is_purged(connection, tenant, table)

    def _control(self, stopping: Event) -> None:
        definitions, stops = self.exchange.definitions, self.exchange.stops
        hear = self.op_log.on_applied
        keys = self.exchange.log_keys
        Controller(self.store, self.cluster, self.appender, definitions, stops, self.genuine, hear, keys).run(stopping)

    def _account(self, applied: list[Applied]) -> None:
        """Imports that are over no longer count, and those that were received or freed may have ended."""
        for one in applied:
            if one.result.over is not None:
                self.quotas.over(one.result.over)
        self.accountant.recheck({import_id for one in applied for import_id in one.result.recheck})
