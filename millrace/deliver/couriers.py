"""Couriers take what is parked for each target to it, as Spark tasks, and tell the ledger.

A target that fails waits longer and longer between tries; nobody waits for it but its own table."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.deliver.backfilling import Backfiller
from millrace.deliver.delivery import BUDGET_SECONDS, Delivered, Order, deliver
from millrace.deliver.ends import Ends
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.gate import Gate
from millrace.deliver.giving_up import give_up
from millrace.deliver.members import Members
from millrace.deliver.queue import Item, Queue, version_of, where_staged
from millrace.exchange.mailboxes import Exchange
from millrace.lake.batch import age
from millrace.lake.schema import spec_of
from millrace.model.chunk import PUBLISH, ROWS
from millrace.model.sinks import REMOTE_DELTA_KIND, SinkTarget
from millrace.observe import log, observe
from millrace.settings import KEYS_HERE, KmsSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import END, StagedGroup
from millrace.sink.delta.places import copies_of
from millrace.sink.delta.settings import DeltaRemoteSettings
from millrace.sink.delta.upkeep import Upkeep
from millrace.wire.client import Appender

MOST_ROWS = 300_000
# Targets that failed last time share one slot, so that those that hang cannot starve the healthy ones.
HEALTHY_AT_ONCE, FAILING_AT_ONCE = 3, 1
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MOST_DOUBLINGS = 0.5, 60.0, 7
LOOK_SECONDS = 0.5
# How often queues that nobody delivers from are looked at: what is held there may have been given up, or be of imports that
# are over.
TAKE_UP_SECONDS = 60.0
LONGEST_BUDGET_SECONDS = 3600.0


@dataclass
class Round:
    """A queue that holds something, and whether somebody is delivering from it."""

    queue: Queue
    target: SinkTarget
    busy: bool = False


class Couriers:
    def __init__(
        self,
        spark: SparkSession,
        exchange: Exchange,
        context: SinkContext,
        appender: Appender,
        upkeep: Upkeep,
        retained: Callable[[], Iterable[StagedGroup]] = tuple,
        kms: KmsSettings = KEYS_HERE,
    ) -> None:
        """`retained` is what the log still holds of validated-input."""
        self._spark = spark
        self._upkeep = upkeep
        self._exchange = exchange
        self._context = context
        self._places = exchange.places
        self._definition = exchange.definitions.read
        self._kms = kms
        self._telling = FactWriter(exchange.places, appender, exchange.keyring(kms))
        self._members = Members(self._places, self._definition)
        self._backfiller = Backfiller(self._places, self._members, self._definition, retained)
        self._ends = Ends(exchange.ends, self._places, self._members, self._definition)
        self._gate = Gate(context)
        self._rounds: dict[Path, Round] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._taken_up = 0.0
        self._healthy = ThreadPoolExecutor(HEALTHY_AT_ONCE, "courier")
        self._failing = ThreadPoolExecutor(FAILING_AT_ONCE, "patient-courier")

    def start(self) -> None:
        """Takes up what a stopped data plane left behind, then whatever is parked."""
        self._take_up()
        for folder in self._members.catching_up():
            member = self._members.at(folder)
            if member is not None:
                self._watch(folder, member.target)
        threading.Thread(target=self._run, name="couriers", daemon=True).start()

    def _take_up(self) -> None:
        self._taken_up = time.monotonic()
        with self._lock:
            watched = set(self._rounds)
        for folder in sorted(self._places.parked.glob("*/*/*/*")):
            if folder not in watched and Queue(folder).holds_anything:
                target = self._target_of(folder)
                if target is not None:
                    self._watch(folder, target)

    def _target_of(self, folder: Path) -> SinkTarget | None:
        member = self._members.at(folder)
        if member is not None:
            return member.target
        items = Queue(folder).waiting()
        named = self._definition(items[-1].group.definition).table.targets if items else ()
        return next((one for one in named if one.name == folder.name), None)

    def park(self, kind: str, group: StagedGroup) -> None:
        """Durable on its way to every target of the kind that is to have it."""
        definition = self._definition(group.definition)
        for name, target in self._members.takers(kind, definition).items():
            folder = self._places.queue(kind, group.tenant, group.table, name)
            queue = Queue(folder)
            is_empty = group.kind == ROWS and group.file is None
            if not is_empty and not queue.waiver.covers(group, version_of(group)):
                queue.put(group, where_staged(self._places, group))
            self._watch(folder, target)
            if group.kind == PUBLISH:
                self._backfiller.note_shown(folder, group.import_id, definition)
            if is_empty or (group.kind == ROWS and group.publish == "atomic"):
                # Nothing to bring, or held: the import may go on.
                self._telling.durable(name, group.chunks)
        self._news.set()

    def _watch(self, folder: Path, target: SinkTarget) -> None:
        with self._lock:
            self._rounds.setdefault(folder, Round(Queue(folder), target)).target = target

    def _run(self) -> None:
        while True:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            self._look_around()
            with self._lock:
                idle = [one for one in self._rounds.values() if not one.busy]
            for one in idle:
                if one.queue.state.next_try <= time.time() or one.queue.was_asked_to_resume():
                    one.busy = True
                    pool = self._failing if one.queue.state.tries else self._healthy
                    pool.submit(self._round, one)

    def _look_around(self) -> None:
        try:
            for folder, target in self._ends.park():
                self._watch(folder, target)
            if time.monotonic() - self._taken_up > TAKE_UP_SECONDS:
                self._take_up()
        except Exception as error:
            # The marks and the items are still there; the next look takes them up.
            observe("trouble", kind="sink", error=f"{type(error).__name__}: {error}"[:1000])

    def _round(self, one: Round) -> None:
        try:
            give_up(self._exchange.safe_version, one.queue)
            is_caught_up = self._backfiller.step(one.queue)
            items = _some(one.queue.items(), one.queue.state.most_rows or MOST_ROWS)
            if items:
                self._visit(one, items)
            elif is_caught_up:
                self._leave(one)
            else:
                one.queue.state.next_try = time.time() + LOOK_SECONDS
        except Exception as error:
            self._put_off(one.queue, Delivered("sink", f"{type(error).__name__}: {error}"[:1000]))
        finally:
            one.busy = False
            self._news.set()

    def _leave(self, one: Round) -> None:
        with self._lock:
            # Looked at again under the lock: what is parked meanwhile is watched, or still here.
            if not one.queue.items() and self._rounds.get(one.queue.folder) is one:
                del self._rounds[one.queue.folder]

    def _visit(self, one: Round, items: list[Item]) -> None:
        if one.queue.state.fault == "sink":
            closed = self._gate.why_closed(one.target)
            if closed is not None:
                self._put_off(one.queue, Delivered("sink", closed))
                return
        outcome = self._deliver(one, items)
        if outcome.fault is not None:
            self._put_off(one.queue, outcome, items)
            return
        self._telling.refused(one.target.name, items, outcome.refused)
        told = [chunk for item in items for chunk in item.group.chunks if not item.is_held and item.group.kind != END]
        self._telling.durable(one.target.name, tuple(told))
        one.queue.done(items)
        self._note_success(one, items, len(outcome.refused))
        if one.target.kind == REMOTE_DELTA_KIND:
            self._note_wear(one.target, items)

    def _deliver(self, one: Round, items: list[Item]) -> Delivered:
        member = self._members.at(one.queue.folder)
        order = Order(
            str(one.queue.folder),
            one.target,
            tuple(items),
        )
        if one.queue.state.budget_seconds is not None:
            order = replace(order, budget_seconds=one.queue.state.budget_seconds)
        if member is not None and member.is_active:
            order = replace(order, definition=member.definition, added=member.added)
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", f"sink-{one.target.kind}")
        work = partial(deliver, exchange=self._exchange, context=self._context, kms=self._kms)
        outcome: Delivered = context.parallelize([order], 1).map(work).collect()[0]
        return outcome

    def _note_success(self, one: Round, items: list[Item], refused: int) -> None:
        state = one.queue.state
        if state.parked_since is not None:
            log("sink_resumed", sink=one.target.name, table=str(one.queue.folder))
        state.parked_since = state.reason = state.fault = None
        state.tries, state.next_try = 0, 0.0
        if state.most_rows is not None:
            state.most_rows = None if state.most_rows * 2 >= MOST_ROWS else state.most_rows * 2
        state.last_version = max(state.last_version, *(item.version for item in items if not item.is_backfill), 0)
        state.refused_rows += refused
        one.queue.save_state()

    def _note_wear(self, target: SinkTarget, items: list[Item]) -> None:
        newest = max((self._definition(item.group.definition) for item in items), key=age)
        place = DeltaRemoteSettings.of(target)
        root = copies_of(self._context, place, newest.tenant, newest.table.name)
        self._upkeep.note(root, spec_of(newest), sum(item.rows for item in items), place)

    def _put_off(self, queue: Queue, outcome: Delivered, items: Sequence[Item] = ()) -> None:
        state = queue.state
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(state.tries, MOST_DOUBLINGS), LONGEST_PAUSE_SECONDS)
        state.parked_since = state.parked_since or time.time()
        state.fault, state.reason = outcome.fault, outcome.message
        state.tries, state.next_try = state.tries + 1, time.time() + pause
        if outcome.is_late and len(items) > 1:
            state.most_rows = max(sum(item.rows for item in items) // 2, 1)
        elif outcome.is_late:
            # It cannot be sent less at once: a slow target is given more time.
            state.budget_seconds = min((state.budget_seconds or BUDGET_SECONDS) * 2, LONGEST_BUDGET_SECONDS)
        queue.save_state()
        observe("trouble", kind="sink", queue=str(queue.folder), fault=outcome.fault, error=outcome.message)


def _some(items: list[Item], most_rows: int) -> list[Item]:
    """The oldest, as many as one task should hold; what is to be shown as a whole is not cut."""
    rows = 0
    some: list[Item] = []
    for item in items:
        if some and rows + item.rows > most_rows and not item.is_held:
            break
        rows += item.rows
        some.append(item)
    return some
