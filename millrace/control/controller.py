"""The controller: reads the table log in order, applies each op once and carries out its effects."""

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from millrace.control.entities import load, save
from millrace.control.genuine import GenuineOps, Sifted
from millrace.control.outbox import EffectOutbox, Kept
from millrace.control.state import StoreDefinition
from millrace.control.step import step
from millrace.control.working_set import WorkingSet
from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.log_keys import LOG_PART, LogKeys
from millrace.exchange.stops import StopList
from millrace.failpoint import reach
from millrace.model.errors import Corrupt
from millrace.model.ops import Applied, Op, read_op
from millrace.model.ops.base import ImportOp, Unreadable
from millrace.model.ops.results import Waiting
from millrace.model.ops.rows import Append
from millrace.observe import observe
from millrace.store.engine import ControlStore
from millrace.store.records import advance, positions
from millrace.wire.client import Appender, Cluster, LogReader, Record, Topics
from millrace.wire.envelope import understood, unpack
from millrace.wire.topics import RAW_INPUT, TABLE_OPS

BATCH = 500
# No key is deleted so soon, so an op that has none by then has lost it.
YOUNG_MS = 86_400_000
# An op that has such values cannot be evaluated or stored, however often it is tried.
NOT_STORABLE = (
    ArithmeticError, AttributeError, Corrupt, DataError, IntegrityError, LookupError, ProgrammingError, TypeError,
    ValueError,
)  # fmt: skip


class Controller:
    """One thread. `on_applied` hears of each op after its transaction has committed."""

    def __init__(
        self,
        store: ControlStore,
        cluster: Cluster,
        appender: Appender,
        definitions: DefinitionStore,
        stops: StopList,
        genuine: GenuineOps,
        on_applied: Callable[[list[Applied]], None],
        log_keys: LogKeys | None = None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._definitions = definitions
        self._genuine = genuine
        self._on_applied = on_applied
        self._log_keys = log_keys
        self._outbox = EffectOutbox(store, appender, stops, Topics(cluster).partitions(RAW_INPUT))

    def run(self, stopping: threading.Event) -> None:
        with self._store.read() as connection:
            self._positions = positions(connection, TABLE_OPS)
            self._genuine.load(connection)
        reader = LogReader(self._cluster, TABLE_OPS, self._positions)
        try:
            self._outbox.relay()
            while not stopping.is_set():
                records = reader.poll(BATCH, 0.1)
                if records:
                    self.apply(records)
        finally:
            reader.close()

    def apply(self, records: list[Record]) -> None:
        sifted = self._genuine.sift(records)
        self._apply(records, sifted, [(self._opened(op, record), record) for op, record in _understood(sifted.ours)])

    def _opened(self, op: Op[Any], record: Record) -> Op[Any]:
        """With its rows in plain. One whose rows are not what was sealed must not block the ops behind it."""
        if not isinstance(op, Append) or op.log_key is None or self._log_keys is None:
            return op
        try:
            opened = opened_append(op, self._log_keys)
        except Corrupt as error:
            observe("trouble", kind="op", error=f"{op.id} {op.kind}: {error}")
            return _unreadable(op, error)
        if not opened.payload and time.time_ns() // 1_000_000 - record.at_ms < YOUNG_MS:
            observe(
                "trouble", kind="op", error=f"{op.id} {op.kind}: the key of its rows is gone; its import cannot end"
            )
        return opened

    def _apply(self, records: list[Record], sifted: Sifted, ops: list[tuple[Op[Any], Record]]) -> None:
        """1. Evaluate and store. 2. Tell who waits. 3. Carry out the effects that leave the store.

        An op whose outcome the store cannot take must not block the ops behind it. It is refused; if not even the refusal can
        be stored, the op is passed over."""
        try:
            applied, kept = self._store_outcomes(records, sifted, ops)
        except NOT_STORABLE as error:
            if not ops:
                raise
            if len(records) > 1:
                for record in records:
                    self.apply([record])
                return
            [(op, record)] = ops
            observe("trouble", kind="op", error=f"{op.id} {op.kind}: {type(error).__name__}: {error}"[:1000])
            self._apply(records, sifted, [] if isinstance(op, Unreadable) else [(_unreadable(op, error), record)])
            return
        self._genuine.taken(sifted)
        self._on_applied(applied)
        if kept.leaves_the_store:
            self._outbox.relay()

    def _store_outcomes(
        self, records: list[Record], sifted: Sifted, ops: list[tuple[Op[Any], Record]]
    ) -> tuple[list[Applied], Kept]:
        """In one transaction: 1. Move the log position, which refuses a controller that was replaced. 2. Evaluate each op
        against what all earlier ones left. 3. Store the outcomes and their effects."""
        after = self._positions | {record.partition: record.offset + 1 for record in records}
        moved = {partition: offset for partition, offset in after.items() if self._positions.get(partition) != offset}
        kept = Kept()
        with self._store.write() as connection:
            advance(connection, TABLE_OPS, self._positions, moved)
            working = WorkingSet(connection, [op.import_id for op, _ in ops if isinstance(op, ImportOp)])
            applied = [one for op, record in ops for one in self._apply_one(working, op, record, kept)]
            working.write()
            kept.write(connection)
            sifted.write(connection)
            reach("before_store_commit")
        reach("after_store_commit")
        self._positions = after
        return applied, kept

    def _apply_one(self, working: WorkingSet, op: Op[Any], record: Record, kept: Kept) -> tuple[Applied, ...]:
        at_us = record.at_ms * 1000
        before = load(working, op)
        outcome = step(before, op, at_us, record.partition)
        save(working, before, outcome.state, at_us)
        kept.over += [i.id for i in outcome.state.imports.values() if i.is_over and i is not before.imports.get(i.id)]
        for number, (cause, effect) in enumerate(outcome.effects):
            if isinstance(effect, StoreDefinition):
                # Before the commit: a definition that can be named must be readable by the workers.
                self._definitions.publish(effect.definition)
            else:
                kept.keep(effect, cause, number, at_us)
        known: dict[str, Op[Any]] = {op.id: op, **{waited.id: waited for waited in before.queue}}
        for answer in outcome.answers:
            asked = known[answer.op_id]
            observe("op_applied", kind=asked.kind, refused=answer.refusal is not None)
            if asked.IS_ASKED_FOR:
                kept.requests[asked.id] = _request(asked, at_us, answer)
        return outcome.answers


def opened_append(op: Append, keys: LogKeys) -> Append:
    """The op with its rows as they came; without a payload if its key is deleted, because all its rows were delivered."""
    seal = keys.opening(op.tenant, op.table, op.id, op.log_key or "")
    payload = "" if seal is None else b64encode(seal.open(b64decode(op.payload), LOG_PART)).decode()
    return replace(op, payload=payload, log_key=None)


def _understood(records: list[Record]) -> Iterator[tuple[Op[Any], Record]]:
    for record in records:
        place = f"{TABLE_OPS}/{record.partition}/{record.offset}"
        op = understood(place, record.value, lambda value: read_op(unpack(value)))
        if op is not None:
            yield op, record


def _unreadable(op: Op[Any], error: Exception) -> Unreadable:
    message = f"The op {op.kind} cannot be evaluated: {type(error).__name__}."
    return Unreadable(op.tenant, op.kind, op.subject, "malformed_op", message, op.joins, id=op.id)


def _request(op: Op[Any], at_us: int, applied: Applied) -> dict[str, Any]:
    result = applied.result
    asked_again = isinstance(result, Waiting) and result.first is not None
    return {
        **{name: getattr(op, name) for name in ("id", "kind", "tenant", "subject")},
        "requested_us": at_us,
        # A repeated request is answered: another op waits in its place.
        "applied": not applied.is_waiting or asked_again,
        "result": {"as": result.first} if isinstance(result, Waiting) and asked_again else result.to_dict(),
        "refusal": None if applied.refusal is None else applied.refusal.to_dict(),
    }
