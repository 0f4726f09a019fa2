"""The accountant: follows `progress`, keeps the ledger, asks for the end of each import that has settled, trims the log."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial

from sqlalchemy import Connection, select

from millrace.account.ledger import first_failure, fold, has_settled
from millrace.model.errors import Unavailable
from millrace.model.facts import Checkpointed, from_dict
from millrace.model.imports import STOPPING, TERMINAL, Import
from millrace.model.names import new_id
from millrace.model.ops import SETTLE_IMPORT, Op
from millrace.observe import gauge, observe
from millrace.store import tables as t
from millrace.store.engine import Store
from millrace.store.records import advance, find_import, positions
from millrace.wire.client import Appended, Appender, Cluster, LogReader, Record, Topics, end_offsets
from millrace.wire.envelope import pack, unpack
from millrace.wire.topics import IMPORT_ERROR, PROGRESS, RAW_INPUT, TABLE_OPS, VALIDATED_INPUT

BATCH = 500
TRIM_SECONDS = 30.0
_STOPPING = select(t.imports.c.id).where(t.imports.c.state == STOPPING)


class Accountant:
    """One thread. A settle op asked for twice is applied once, so a restart may simply ask again."""

    def __init__(self, store: Store, cluster: Cluster, appender: Appender) -> None:
        self._store = store
        self._cluster = cluster
        self._appender = appender
        self._topics = Topics(cluster)
        self._checkpoints: dict[str, Checkpointed] = {}
        self._asked: set[str] = set()
        self._pinned: dict[str, int] = {}
        self._trimmed_at = time.monotonic()
        self._settling = threading.Lock()

    def run(self, stopping: threading.Event) -> None:
        with self._store.read() as connection:
            self._positions = positions(connection, PROGRESS)
            unsettled = list(
                connection.execute(select(t.imports.c.id).where(t.imports.c.state.not_in(TERMINAL))).scalars()
            )
        reader = LogReader(self._cluster, PROGRESS, self._positions)
        try:
            self.recheck(set(unsettled))
            while not stopping.is_set():
                records = reader.poll(BATCH, 0.1)
                if records:
                    self._account(records)
                if time.monotonic() - self._trimmed_at > TRIM_SECONDS:
                    self._trim()
        finally:
            reader.close()

    def _account(self, records: list[Record]) -> None:
        facts = [from_dict(unpack(record.value)) for record in records]
        after = {record.partition: record.offset + 1 for record in records}
        with self._store.write() as connection:
            folded = fold(connection, facts, time.time_ns() // 1000)
            advance(connection, PROGRESS, self._positions, after)
        self._positions |= after
        passed = {fact.query: fact for fact in facts if isinstance(fact, Checkpointed)}
        self._checkpoints |= passed
        self._settle(folded.values())
        if passed:
            self.recheck(self._stopping_imports())

    def _stopping_imports(self) -> set[str]:
        with self._store.read() as connection:
            return set(connection.execute(_STOPPING).scalars())

    def recheck(self, import_ids: set[str]) -> None:
        """Looks at imports again: their end op may have come after their last fact. Called from any thread."""
        if import_ids:
            with self._store.read() as connection:
                found = [find_import(connection, import_id) for import_id in import_ids]
            self._settle(imp for imp in found if imp is not None)

    def _settle(self, imports: Iterable[Import]) -> None:
        passed = self._passed()
        with self._settling, self._store.read() as connection:
            for imp in imports:
                if imp.id not in self._asked and has_settled(connection, imp, passed):
                    failure = first_failure(connection, imp.id) if imp.counts.failed_chunks else None
                    self._ask_to_settle(imp, failure, self._partition(connection, imp.tenant))

    def _ask_to_settle(self, imp: Import, failure: str | None, partition: int) -> None:
        self._asked.add(imp.id)
        record = pack(_settle_op(imp, failure).to_dict())
        asked = self._appender.append(TABLE_OPS, imp.tenant.encode(), record, partition)
        asked.add_done_callback(partial(self._ask_again_if_lost, imp.id))
        observe("import_settled", state=imp.final or "ended")

    def _partition(self, connection: Connection, tenant: str) -> int:
        if tenant not in self._pinned:
            pinned = connection.execute(select(t.tenants.c.partition).where(t.tenants.c.name == tenant)).scalar_one()
            self._pinned[tenant] = int(pinned)
        return self._pinned[tenant]

    def _ask_again_if_lost(self, import_id: str, asked: "Future[Appended]") -> None:
        if asked.exception() is not None:
            self._asked.discard(import_id)

    def _passed(self) -> dict[str, int]:
        passed: dict[str, int] = {}
        for checkpoint in self._checkpoints.values():
            for partition, offset in checkpoint.ends.get(RAW_INPUT, {}).items():
                passed[partition] = max(passed.get(partition, 0), offset)
        return passed

    def _trim(self) -> None:
        """Frees what no restart can ask for again: before the start of each query's last committed batch."""
        self._trimmed_at = time.monotonic()
        before = {
            (topic, int(partition)): offset
            for checkpoint in self._checkpoints.values()
            for topic, partitions in checkpoint.starts.items()
            for partition, offset in partitions.items()
        }
        before |= {(PROGRESS, partition): offset for partition, offset in self._positions.items()}
        try:
            self._topics.trim(before)
            self._measure_lag()
        except Unavailable:
            observe("trouble", kind="trim")
        with self._store.read() as connection:
            unsettled = set(
                connection.execute(select(t.imports.c.id).where(t.imports.c.state.not_in(TERMINAL))).scalars()
            )
        gauge("open_imports", len(unsettled))
        with self._settling:
            self._asked &= unsettled

    def _measure_lag(self) -> None:
        ends = {topic: end_offsets(self._cluster, topic) for topic in (RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR)}
        for query, checkpoint in self._checkpoints.items():
            for topic, partitions in checkpoint.ends.items():
                behind = sum(ends[topic][int(partition)][1] - offset for partition, offset in partitions.items())
                gauge("lag", behind, topic=topic, query=query)


def _settle_op(imp: Import, failure: str | None) -> Op:
    body = {"counts": asdict(imp.counts), "durable": imp.durable, "failure": failure}
    return Op(new_id("op"), SETTLE_IMPORT, imp.tenant, imp.id, body)
