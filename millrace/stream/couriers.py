"""Couriers take what is parked for each target to it, as Spark tasks, and tell the ledger.

A target that fails waits longer and longer between tries; nobody waits for it but its own table."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.model.chunk import ROWS, Verdict
from millrace.model.facts import Durable, to_dict
from millrace.model.names import Home, chunk_id
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition
from millrace.observe import log, observe
from millrace.sink.contract import Group
from millrace.sink.delivering import Order, Refused, deliver
from millrace.sink.parking import Item, Queue, version_of
from millrace.validate.errors_table import REJECTED_SCHEMA, stored_rejected
from millrace.wire.client import Appender
from millrace.wire.envelope import pack
from millrace.wire.topics import IMPORT_ERROR, PROGRESS

MOST_ROWS = 400_000
# Targets that failed last time share one slot, so that those that hang cannot starve the healthy ones.
HEALTHY_AT_ONCE, FAILING_AT_ONCE = 3, 1
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
LOOK_SECONDS = 0.5
TELL_SECONDS = 150.0


@dataclass
class Round:
    """A queue that holds something, and whether somebody is delivering from it."""

    queue: Queue
    target: SinkTarget
    busy: bool = False


class Couriers:
    def __init__(self, spark: SparkSession, home: Home, appender: Appender) -> None:
        self._spark = spark
        self._home = home
        self._appender = appender
        self._rounds: dict[Path, Round] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._healthy = ThreadPoolExecutor(HEALTHY_AT_ONCE, "courier")
        self._failing = ThreadPoolExecutor(FAILING_AT_ONCE, "patient-courier")

    def start(self) -> None:
        """Takes up what a stopped data plane left behind, then whatever is parked."""
        for folder in sorted(self._home.parked.glob("*/*/*/*")):
            items = Queue(folder).items()
            if items:
                self._watch(folder, self._definition(items[-1].group.definition), folder.name)
        threading.Thread(target=self._run, name="couriers", daemon=True).start()

    def park(self, kind: str, group: Group) -> None:
        """Durable on its way to every target of the kind that the group's definition names."""
        definition = self._definition(group.definition)
        for target in definition.table.targets:
            if target.kind != kind:
                continue
            folder = self._home.queue(kind, group.tenant, group.table, target.name)
            queue = Queue(folder)
            is_empty = group.kind == ROWS and group.file is None
            if not is_empty and version_of(group) > queue.waived_below:
                queue.put(group, self._home.table(group.tenant, group.table))
                self._watch(folder, definition, target.name)
            if is_empty or (group.kind == ROWS and group.publish == "atomic"):
                # Nothing to bring, or held: the import may go on.
                self._tell(target.name, group.chunks)
        self._news.set()

    def _watch(self, folder: Path, definition: Definition, name: str) -> None:
        target = next((one for one in definition.table.targets if one.name == name), None)
        if target is not None:
            with self._lock:
                self._rounds.setdefault(folder, Round(Queue(folder), target)).target = target

    def _run(self) -> None:
        while True:
            self._news.wait(LOOK_SECONDS)
            self._news.clear()
            with self._lock:
                idle = [one for one in self._rounds.values() if not one.busy]
            for one in idle:
                if one.queue.state.next_try <= time.time() or one.queue.was_asked_to_resume():
                    one.busy = True
                    pool = self._failing if one.queue.state.tries else self._healthy
                    pool.submit(self._round, one)

    def _round(self, one: Round) -> None:
        try:
            below = one.queue.waived_below
            one.queue.done([item for item in one.queue.items() if item.version <= below])
            items = _some(one.queue.items())
            if not items:
                with self._lock:
                    # Looked at again under the lock: what is parked meanwhile is watched, or still here.
                    if not one.queue.items() and self._rounds.get(one.queue.folder) is one:
                        del self._rounds[one.queue.folder]
                return
            self._deliver(one, items)
        except Exception as error:
            self._put_off(one.queue, "sink", f"{type(error).__name__}: {error}"[:1000])
        finally:
            one.busy = False
            self._news.set()

    def _deliver(self, one: Round, items: list[Item]) -> None:
        order = Order(str(self._home.root), str(one.queue.folder), one.target, tuple(items))
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", f"sink-{one.target.kind}")
        outcome = context.parallelize([order], 1).map(deliver).collect()[0]
        if outcome.fault is not None:
            self._put_off(one.queue, outcome.fault, outcome.message)
            return
        if outcome.refused:
            self._keep_refused(one, items, outcome.refused)
        told = [chunk for item in items for chunk in item.group.chunks if not item.is_held]
        self._tell(one.target.name, tuple(told))
        one.queue.done(items)
        state = one.queue.state
        if state.parked_since is not None:
            log("sink_resumed", sink=one.target.name, table=str(one.queue.folder))
        state.parked_since = state.reason = state.fault = None
        state.tries, state.next_try = 0, 0.0
        state.last_version = max(state.last_version, *(item.version for item in items))
        state.refused_rows += len(outcome.refused)
        one.queue.save_state()

    def _put_off(self, queue: Queue, fault: str, reason: str) -> None:
        state = queue.state
        pause = min(FIRST_PAUSE_SECONDS * 2**state.tries, LONGEST_PAUSE_SECONDS)
        state.parked_since = state.parked_since or time.time()
        state.fault, state.reason, state.tries, state.next_try = fault, reason, state.tries + 1, time.time() + pause
        queue.save_state()
        observe("trouble", kind="sink", queue=str(queue.folder), fault=fault, error=reason)

    def _tell(self, sink: str, chunks: tuple[tuple[str, int], ...]) -> None:
        if chunks:
            fact = Durable(sink, chunks)
            self._appender.append(PROGRESS, sink.encode(), pack(to_dict(fact)), 0).result(TELL_SECONDS)

    def _keep_refused(self, one: Round, items: list[Item], refused: tuple[Refused, ...]) -> None:
        """Rows that the target will not take go to the error store under its name."""
        places = {
            chunk.version: chunk.chunk_id for item in items if item.group.file for chunk in item.group.file.chunks
        }
        group = items[0].group
        store = Store(self._home.table_errors(group.tenant, group.table))
        for row in refused:
            import_id, _, number = places[row.version].rpartition("/")
            verdict = Verdict(import_id, int(number), row.version, 1, 0, 1)
            reason = {"column": None, "rule": f"sink:{one.target.name}", "message": row.message, "value": None}
            rejected = pa.table([[row.row], [0], [b""], [[reason]]], schema=REJECTED_SCHEMA)
            known = StagedChunk(f"{chunk_id(import_id, int(number))}@{one.target.name}/{row.row}", 0, 1, row.version)
            staged = write_data_file(store, stored_rejected(verdict, rejected), (), f"{import_id}-{number}", (known,))
            report = {"tenant": group.tenant, "table": group.table, "definition": group.definition, "chunks": []}
            record = pack({**report, "file": staged.to_dict(), "kind": ROWS, "version": 0, "publish": "rolling"})
            self._appender.append(IMPORT_ERROR, import_id.encode(), record, 0).result(TELL_SECONDS)

    def _definition(self, fingerprint: str) -> Definition:
        return Definition.from_json(self._home.definition(fingerprint).read_bytes())


def _some(items: list[Item]) -> list[Item]:
    """The oldest, as many as one task should hold; what is to be shown as a whole is not cut."""
    rows = 0
    some: list[Item] = []
    for item in items:
        if some and rows + item.rows > MOST_ROWS and not item.is_held:
            break
        rows += item.rows
        some.append(item)
    return some


def used_kinds(home: Home) -> list[str]:
    return sorted(path.name for path in home.used_sinks.glob("*")) if home.used_sinks.is_dir() else []
