"""One round of a courier at one queue: give up what is waived, let the target catch up, bring the next portion as a Spark
task, and write the facts before the items leave the queue."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from pyspark.sql import SparkSession

from millrace.deliver.backfill import Backfiller
from millrace.deliver.delivery import Delivered, Order, deliver
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.pace import after_failure, after_success, next_portion
from millrace.deliver.probe import Probe
from millrace.deliver.queue import Item, Queue, deliverable
from millrace.deliver.rounds import LOOK_SECONDS, WatchedQueue
from millrace.deliver.table_pins import pin_files
from millrace.deliver.waiver import give_up
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.queues import Queues
from millrace.lake.schema import spec_of
from millrace.model.queues import Member
from millrace.model.sinks import REMOTE_DELTA_KIND, SinkTarget
from millrace.observe import log, observe
from millrace.settings import KmsSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import END
from millrace.sink.delta.places import copies_of
from millrace.sink.delta.settings import DeltaRemoteSettings
from millrace.sink.delta.upkeep import Upkeep


@dataclass(frozen=True)
class Courier:
    spark: SparkSession
    exchange: Exchange
    context: SinkContext
    queues: Queues
    facts: FactWriter
    backfiller: Backfiller
    upkeep: Upkeep
    probe: Probe
    kms: KmsSettings

    def work(self, watched: WatchedQueue) -> bool:
        """True when nothing is left to do."""
        try:
            return self._work(watched)
        except Exception as error:
            self._put_off(watched.queue, Delivered("sink", f"{type(error).__name__}: {error}"[:1000]))
            return False

    def _work(self, watched: WatchedQueue) -> bool:
        record = self.queues.get(watched.queue.key)
        if record is None:
            return True
        watched.queue.state = record.state
        left = give_up(self.exchange.safe_version, watched.queue, record.waiver)
        is_catching_up = record.member is not None and record.member.is_catching_up
        is_caught_up = not is_catching_up or self.backfiller.step(watched.queue, record)
        items = watched.queue.items() if is_catching_up else deliverable(left)
        portion = next_portion(items, watched.queue.state.most_rows)
        if portion:
            pin_files(self.exchange.places, watched.queue, portion)
            return self._visit(watched, portion, record.member) and is_caught_up and len(portion) == len(items)
        if not is_caught_up:
            watched.queue.state = replace(watched.queue.state, next_try=time.time() + LOOK_SECONDS)
        return is_caught_up

    def _visit(self, watched: WatchedQueue, items: list[Item], member: Member | None) -> bool:
        """Whether the target has the items now."""
        state = watched.queue.state
        failure = self.probe.failure(watched.queue.key.tenant, watched.target) if state.fault == "sink" else None
        if failure is not None:
            self._put_off(watched.queue, Delivered("sink", failure))
            return False
        outcome = self._deliver(watched, items, member)
        if outcome.fault is not None:
            self._put_off(watched.queue, outcome, items)
            return False
        self.facts.write_refused(watched.target.name, items, outcome.refused)
        counted = (item.group.chunks for item in items if not item.awaits_publish and item.group.kind != END)
        self.facts.write_durable(watched.target.name, tuple(chain.from_iterable(counted)))
        if state.parked_since is not None:
            log("sink_resumed", sink=watched.target.name, table=str(watched.queue.key))
        watched.queue.done(items, after_success(state, items, len(outcome.refused)))
        if watched.target.kind == REMOTE_DELTA_KIND:
            self._note_wear(watched.target, items)
        return True

    def _deliver(self, watched: WatchedQueue, items: list[Item], member: Member | None) -> Delivered:
        order = Order(watched.queue.pins, watched.target, tuple(items))
        if watched.queue.state.budget_seconds is not None:
            order = replace(order, budget_seconds=watched.queue.state.budget_seconds)
        if member is not None and member.is_active:
            order = replace(order, definition=member.definition, added=member.added)
        spark = self.spark.sparkContext
        spark.setLocalProperty("spark.scheduler.pool", f"sink-{watched.target.kind}")
        context = self.context.for_tenant(watched.queue.key.tenant)
        work = partial(deliver, exchange=self.exchange, context=context, kms=self.kms)
        outcome: Delivered = spark.parallelize([order], 1).map(work).collect()[0]
        return outcome

    def _note_wear(self, target: SinkTarget, items: list[Item]) -> None:
        definitions = (self.exchange.definitions.read(item.group.definition) for item in items)
        newest = max(definitions, key=lambda definition: definition.age)
        place = DeltaRemoteSettings.of(target)
        root = copies_of(self.context, place, newest.tenant, newest.table.name)
        self.upkeep.note(root, spec_of(newest), sum(item.rows for item in items), place)

    def _put_off(self, queue: Queue, outcome: Delivered, items: Sequence[Item] = ()) -> None:
        # In memory first: if the store is away as well, the pause holds all the same. Tenants read the reason.
        told = replace(outcome, message=queue.places.below_home(outcome.message))
        queue.state = after_failure(queue.state, told, items, time.time())
        queue.done((), queue.state)
        observe("trouble", kind="sink", queue=str(queue.key), fault=outcome.fault, error=outcome.message)
