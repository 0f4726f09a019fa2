"""The accountant: follows `progress`, keeps the ledger, asks for the end of each import that has settled, trims the log."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from millrace.account.counting import Due
from millrace.account.ledger import due, fold, judged_numbers, mark_end
from millrace.account.log_key_expiry import LogKeyExpiry
from millrace.account.quality import with_quality
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.partitions import OpPartitions
from millrace.failpoint import reach
from millrace.model.budget import HOLD, STOP, Budget, budget_in_force
from millrace.model.errors import Unavailable
from millrace.model.facts import Checkpointed, from_dict
from millrace.model.imports import AMEND, LOAD, STOPPING, TERMINAL, Import
from millrace.model.names import new_id
from millrace.model.ops.imports import SettleImport
from millrace.model.sinks import DELTA_KIND
from millrace.observe import gauge, observe
from millrace.store import tables as t
from millrace.store.agreements import agreement_of
from millrace.store.engine import ControlStore
from millrace.store.records import advance, find_imports, positions
from millrace.wire.client import Appended, Cluster, LogReader, Record, Topics
from millrace.wire.envelope import pack, understood, unpack
from millrace.wire.offsets import end_offsets, offsets_at
from millrace.wire.signing import OpSigner
from millrace.wire.topics import DATA_KEPT_MS, DAY_MS, IMPORT_ERROR, PROGRESS, RAW_INPUT, TABLE_OPS, VALIDATED_INPUT

BATCH = 500
TRIM_SECONDS = 30.0
CATCH_UP_SECONDS = 0.05
# The clocks of producers may differ by this much.
KEPT_BEFORE_MS = 60_000
SAFETY_US = 3_600_000_000
_UNSETTLED = select(t.imports.c.id, t.imports.c.begun_us, t.imports.c.first_version).where(
    t.imports.c.state.not_in(TERMINAL)
)
_STOPPING = select(t.imports.c.id).where(t.imports.c.state == STOPPING)


class Accountant:
    """One thread. A settle op asked for twice is applied once, so a restart may simply ask again."""

    def __init__(
        self, store: ControlStore, cluster: Cluster, appender: OpSigner, partitions: OpPartitions, exchange: Exchange
    ) -> None:
        self._definitions = exchange.definitions.read
        self._exchange = exchange
        self._store = store
        self._cluster = cluster
        self._appender = appender
        self._topics = Topics(cluster)
        self._partitions = partitions
        self._checkpoints: dict[str, Checkpointed] = {}
        self._asked: set[tuple[str, str]] = set()
        self._to_recheck: set[str] = set()
        self._trimmed_at = time.monotonic()
        self.retention = "ok"
        self.ops_kept_days: int | None = None
        self.log_key_expiry = LogKeyExpiry(store, cluster, exchange.log_keys)
        self._settling = threading.Lock()
        self._listeners: list[Callable[[Mapping[str, int]], None]] = []

    def listen(self, listener: Callable[[Mapping[str, int]], None]) -> None:
        """Calls the listener, from the accountant's thread, with how many chunks of imports have their verdicts."""
        self._listeners.append(listener)

    def run(self, stopping: threading.Event) -> None:
        self._wait_for_the_controller(stopping)
        with self._store.read() as connection:
            self._positions = positions(connection, PROGRESS)
            unsettled = list(
                connection.execute(select(t.imports.c.id).where(t.imports.c.state.not_in(TERMINAL))).scalars()
            )
        # Facts that were trimmed belong to settled imports. A store from a backup learns of these from the log of ops.
        reader = LogReader(self._cluster, PROGRESS, self._positions, may_have_gaps=True)
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

    def _wait_for_the_controller(self, stopping: threading.Event) -> None:
        """A store from a backup first catches up with the log of ops: a fact about an unknown import would be lost."""
        ends = {partition: end for partition, (_, end) in end_offsets(self._cluster, TABLE_OPS).items() if end}
        while not stopping.is_set():
            with self._store.read() as connection:
                reached = positions(connection, TABLE_OPS)
            if all(reached.get(partition, 0) >= end for partition, end in ends.items()):
                return
            stopping.wait(CATCH_UP_SECONDS)

    def _account(self, records: list[Record]) -> None:
        read = (understood(PROGRESS, record.value, lambda value: from_dict(unpack(value))) for record in records)
        facts = [fact for fact in read if fact is not None]
        after = {record.partition: record.offset + 1 for record in records}
        with self._store.write() as connection:
            advance(connection, PROGRESS, self._positions, after)
            folded = fold(connection, facts, time.time_ns() // 1000)
        reach("after_ledger_commit")
        self._positions |= after
        for listener in self._listeners:
            listener({import_id: imp.counts.chunks for import_id, imp in folded.items()})
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
            try:
                with self._store.read() as connection:
                    found = list(find_imports(connection, import_ids))
            except Exception:
                self._to_recheck.update(import_ids)
                raise
            self._settle(found)

    def _settle(self, imports: Iterable[Import]) -> None:
        passed = self._passed()
        with self._settling, self._store.read() as connection:
            for imp in imports:
                try:
                    self._settle_one(connection, imp, passed)
                except Exception as error:
                    # The other imports go on; this one is checked again at the next trim.
                    self._to_recheck.add(imp.id)
                    observe("trouble", kind="settle", error=f"{imp.id}: {type(error).__name__}: {error}"[:1000])

    def _settle_one(self, connection: Connection, imp: Import, passed: dict[str, int]) -> None:
        if imp.state == STOPPING and not self._has_held_verdicts(connection, imp):
            return
        asked = due(connection, imp, passed, partial(self._budget, connection))
        if asked is not None:
            asked = with_quality(connection, imp, asked, self._definitions(imp.definition), self._exchange)
        if asked is not None:
            self._ask(connection, imp, asked)

    def _has_held_verdicts(self, connection: Connection, imp: Import) -> bool:
        """Chunks that were held come behind the markers of a stopped import, which say nothing about them."""
        held = self._exchange.held_chunks.numbers(imp.tenant, imp.id)
        return not held or held <= judged_numbers(connection, imp.id)

    def _budget(self, connection: Connection, imp: Import) -> Budget:
        """The agreement is asked for only if rows were rejected. Imports of streamed or replayed rows are never held, because
        their senders wait for the end. One that somebody released completes, whatever the agreement says since."""
        own = self._definitions(imp.definition).table.budget
        if not imp.counts.rejected:
            return own
        agreement = agreement_of(connection, imp.tenant)
        found = own if agreement is None else budget_in_force(own, agreement.budget)
        if imp.options.get("released"):
            return replace(found, on_budget=HOLD)
        return found if imp.kind in (LOAD, AMEND) else replace(found, on_budget=STOP)

    def _ask(self, connection: Connection, imp: Import, op: Due) -> None:
        what = imp.id, op.kind
        if what in self._asked:
            return
        reach("before_end")
        if isinstance(op, SettleImport):
            mark_end(connection, imp, self._definitions(imp.definition), self._exchange.ends)
        record = pack(op.asked_as(new_id("op")).to_dict())
        asked = self._appender.append(TABLE_OPS, imp.tenant.encode(), record, self._partitions.of(imp.tenant))
        self._asked.add(what)
        asked.add_done_callback(partial(self._ask_again_if_lost, what))
        if isinstance(op, SettleImport):
            observe("import_settled", state=imp.final or "ended")

    def _ask_again_if_lost(self, what: tuple[str, str], asked: "Future[Appended]") -> None:
        if asked.exception() is not None:
            self._asked.discard(what)
            self._to_recheck.add(what[0])

    def _passed(self) -> dict[str, int]:
        passed: dict[str, int] = {}
        for checkpoint in self._checkpoints.values():
            for partition, offset in checkpoint.ends.get(RAW_INPUT, {}).items():
                passed[partition] = max(passed.get(partition, 0), offset)
        return passed

    def _trim(self) -> None:
        """Frees records that no restart reads again: those before the start of each query's last committed batch."""
        self._trimmed_at = time.monotonic()
        before = self._passed_by_all()
        with self._store.read() as connection:
            unsettled = {row.id: row for row in connection.execute(_UNSETTLED)}
        try:
            self._topics.trim(before | self._folded_for_good(unsettled.values()) | self._old_ops())
            self._measure_lag()
            self.log_key_expiry.run()
        except Unavailable:
            observe("trouble", kind="trim")
        self._write_safe_version(unsettled.values())
        gauge("open_imports", len(unsettled))
        with self._settling:
            self._asked.difference_update([what for what in list(self._asked) if what[0] not in unsettled])
        self.recheck(self._taken_to_recheck())

    def _taken_to_recheck(self) -> set[str]:
        """Other threads add while this one takes: the set is emptied one by one, so that nothing added is lost."""
        taken: set[str] = set()
        while self._to_recheck:
            taken.add(self._to_recheck.pop())
        return taken

    def _passed_by_all(self) -> dict[tuple[str, int], int]:
        """The offsets that the slowest query of each topic has passed; nothing of a topic until all its queries report."""
        before: dict[tuple[str, int], int] = {}
        for checkpoint in self._checkpoints.values():
            for topic, partitions in checkpoint.ends.items():
                for partition in partitions:
                    place = topic, int(partition)
                    # The first batch has no start: it may be read again from the beginning of the topic.
                    start = checkpoint.starts.get(topic, {}).get(partition, 0)
                    before[place] = min(before.get(place, start), start)
        kinds = (DELTA_KIND, *self._exchange.sink_kinds.used())
        silent = any(f"sink-{kind}" not in self._checkpoints for kind in kinds)
        return {place: offset for place, offset in before.items() if not silent or place[0] != VALIDATED_INPUT}

    def _watch_retention(self, ends: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
        """Warns of a query that is so far behind that the broker may soon delete records that it has not read."""
        alarm = "ok"
        half_way = time.time_ns() // 1_000_000 - DATA_KEPT_MS // 2
        for query, checkpoint in self._checkpoints.items():
            for topic, partitions in checkpoint.ends.items():
                old = offsets_at(self._cluster, topic, half_way)
                for partition, offset in partitions.items():
                    first, _ = ends[topic][int(partition)]
                    if offset < first:
                        alarm = f"{query} has not read records {offset} to {first - 1} of {topic}/{partition}: they are gone."
                    elif offset < old.get(int(partition), 0) and alarm == "ok":
                        alarm = f"{query} is more than half of the broker's retention behind in {topic}/{partition}."
        if alarm not in ("ok", self.retention):
            observe("trouble", kind="retention", error=alarm)
        self.retention = alarm

    def _folded_for_good(self, unsettled: Iterable[Any]) -> dict[tuple[str, int], int]:
        """Facts about unsettled imports stay: a control store from a backup needs them again."""
        oldest_us = min((row.begun_us for row in unsettled), default=None)
        if oldest_us is None:
            return {(PROGRESS, partition): offset for partition, offset in self._positions.items()}
        reached = offsets_at(self._cluster, PROGRESS, oldest_us // 1000 - KEPT_BEFORE_MS)
        return {
            (PROGRESS, partition): min(offset, self._positions.get(partition, 0))
            for partition, offset in reached.items()
        }

    def _old_ops(self) -> dict[tuple[str, int], int]:
        """Ops that were applied long ago, if the operator lets them go. The store cannot be rebuilt from the log then."""
        if self.ops_kept_days is None:
            return {}
        with self._store.read() as connection:
            applied = positions(connection, TABLE_OPS)
        kept_from = time.time_ns() // 1_000_000 - self.ops_kept_days * DAY_MS
        old = offsets_at(self._cluster, TABLE_OPS, kept_from)
        return {(TABLE_OPS, partition): min(offset, applied.get(partition, 0)) for partition, offset in old.items()}

    def _write_safe_version(self, unsettled: Iterable[Any]) -> None:
        """No row at or below this version is still on its way, so a tombstone of such a version has nothing left to beat."""
        oldest = min((row.first_version for row in unsettled), default=time.time_ns() // 1000)
        self._exchange.safe_version.write(oldest - 1 - SAFETY_US)

    def _measure_lag(self) -> None:
        ends = {topic: end_offsets(self._cluster, topic) for topic in (RAW_INPUT, VALIDATED_INPUT, IMPORT_ERROR)}
        self._watch_retention(ends)
        for query, checkpoint in self._checkpoints.items():
            for topic, partitions in checkpoint.ends.items():
                behind = sum(ends[topic][int(partition)][1] - offset for partition, offset in partitions.items())
                gauge("lag", behind, topic=topic, query=query)
