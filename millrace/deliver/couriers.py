"""Couriers bring what is parked for each target to it. A target that fails waits longer and longer between tries; only its
own table waits for it."""

import time
from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import SparkSession

from millrace.deliver.backfill import Backfiller
from millrace.deliver.courier import Courier
from millrace.deliver.ends import Ends
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.probe import Probe
from millrace.deliver.queue import Queue, where_staged
from millrace.deliver.roster import Roster
from millrace.deliver.rounds import Rounds, WatchedQueue
from millrace.deliver.waiver import is_waived
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.queues import ParkedRow, Queues
from millrace.model.chunk import PUBLISH, ROWS
from millrace.model.queues import QueueKey, QueueRecord
from millrace.model.sinks import SinkTarget
from millrace.observe import observe
from millrace.settings import KEYS_HERE, KmsSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.faults import table_failure
from millrace.sink.delta.upkeep import Upkeep
from millrace.wire.client import Appender

HEALTHY_AT_ONCE, FAILING_AT_ONCE = 3, 1
# How often queues without a courier are looked at: what waits there for its publication may have been given up.
TAKE_UP_SECONDS = 60.0


class Couriers(Rounds):
    def __init__(
        self,
        spark: SparkSession,
        exchange: Exchange,
        context: SinkContext,
        appender: Appender,
        upkeep: Upkeep,
        queues: Queues,
        retained: Callable[[], Iterable[StagedGroup]] = tuple,
        kms: KmsSettings = KEYS_HERE,
    ) -> None:
        """`retained` is what the log still holds of validated-input."""
        super().__init__(exchange.places, queues, "courier", HEALTHY_AT_ONCE, FAILING_AT_ONCE)
        self._definitions = exchange.definitions.read
        self._facts = FactWriter(exchange.places, appender, exchange.keyring(kms))
        self._backfiller = Backfiller(exchange.places, queues, self._definitions, retained)
        self._ends = Ends(exchange.ends, exchange.places, queues, self._definitions)
        self._courier = Courier(
            spark, exchange, context, queues, self._facts, self._backfiller, upkeep, Probe(context), kms
        )
        self._taken_up = 0.0

    def start(self) -> None:
        """Takes up what a stopped data plane left behind, then whatever is parked."""
        self._take_up()
        for record in self._queues.all():
            if record.member is not None and record.member.is_catching_up:
                self._watch(record.key, record.member.target, record.state)
        self._begin(self._look_around)

    def _take_up(self) -> None:
        self._taken_up = time.monotonic()
        for record in self._queues.with_parked():
            if record.key.is_own:
                continue
            try:
                target = self._target_of(record)
            except FileNotFoundError as error:
                # The definition is gone. The other queues do not wait until someone puts it back.
                observe("trouble", kind="sink", queue=str(record.key), error=str(error)[:1000])
                continue
            if target is not None:
                self._watch(record.key, target, record.state)

    def _target_of(self, record: QueueRecord) -> SinkTarget | None:
        if record.member is not None:
            return record.member.target
        items = Queue(self._places, self._queues, record.key).waiting()
        named = self._definitions(items[-1].group.definition).table.targets if items else ()
        return next((target for target in named if target.name == record.key.target), None)

    def park(self, kind: str, groups: Sequence[StagedGroup]) -> None:
        """Durable on their way to every target of the kind that is to have them: one transaction for all of them."""
        roster = Roster(self._queues, self._definitions, kind, {(group.tenant, group.table) for group in groups})
        takers = [
            (group, key, target)
            for group in groups
            for key, target in roster.takers(self._definitions(group.definition)).items()
        ]
        with self._queues.pinning:
            self._queues.park(
                [
                    self._row(key, group)
                    for group, key, _ in takers
                    if not _is_empty(group) and not is_waived(roster.waiver(key), group)
                ]
            )
        for _, key, target in takers:
            self._watch(key, target)
        self._news.set()
        counted: dict[str, list[tuple[str, int]]] = {}
        for group, key, _ in takers:
            if group.kind == PUBLISH and roster.takes_late(key, self._definitions(group.definition)):
                self._backfiller.note_published(key, group)
            if _is_empty(group) or (group.kind == ROWS and group.publish == "atomic"):
                # Nothing to bring, or nothing before the publication: the import may go on.
                counted.setdefault(key.target, []).extend(group.chunks)
        for name, chunks in counted.items():
            self._facts.write_durable(name, tuple(chunks))

    def _row(self, key: QueueKey, group: StagedGroup) -> ParkedRow:
        queue, table = Queue(self._places, self._queues, key), where_staged(self._places, group)
        try:
            return queue.row_of(group, table)
        except OSError as error:
            if table_failure(error, table, self._places.is_on_our_disk) is None:
                raise
            # Of a tenant that was erased meanwhile, for example. Only this queue waits for it, not all of the kind. If the
            # table's folder comes back, the courier finds the files there.
            observe("trouble", kind="sink", queue=str(key), error=str(error)[:1000])
            return queue.row_of(group, None)

    def _look_around(self) -> None:
        for key, target in self._ends.park():
            self._watch(key, target)
        if time.monotonic() - self._taken_up > TAKE_UP_SECONDS:
            self._take_up()

    def _work(self, watched: WatchedQueue) -> bool:
        return self._courier.work(watched)

    def _is_over(self, watched: WatchedQueue) -> bool:
        return not watched.queue.items()


def _is_empty(group: StagedGroup) -> bool:
    return group.kind == ROWS and group.file is None
