"""The server process: the controller's shell with its outbox, and the accountant. Each step may be the last."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from millrace.account.counting import due
from millrace.control.state import StoreDefinition
from millrace.control.step import step
from millrace.model.budget import Budget
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import Checkpointed
from millrace.model.imports import STOPPING, Import
from millrace.model.ops import Op
from millrace.model.ops.imports import SettleImport
from simulate.logs import EVENTS, OPS, PROGRESS, RAW, RAW_PARTITIONS, Record
from simulate.memory import SecondReader
from simulate.watch import Applying

if TYPE_CHECKING:
    from simulate.world import World

MOST_OPS, MOST_FACTS = 4, 6


class Crash(Exception):
    """The process is gone; what was committed stays."""


class Controller:
    """Remembers where it is in the log, as the real one does, so that a second one can get in its way."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._begin()

    def _begin(self) -> None:
        self._positions = self._world.store.read().position(OPS)
        self._relaying: Iterator[None] | None = self._relay()
        self._read = -1

    def step(self, chance: Random) -> bool:
        """One effect of the outbox, or a few records of the log. False if there was nothing to do."""
        if self._relaying is not None:
            if next(self._relaying, self) is self:
                self._relaying = None
            return True
        if self._read == self._world.logs.length[OPS]:
            return False
        records = self._some_records(chance)
        if not records:
            self._read = self._world.logs.length[OPS]
        else:
            try:
                self._apply(records, chance)
            except SecondReader:
                self._begin()
        return bool(records)

    def _some_records(self, chance: Random) -> list[Record]:
        records: list[Record] = []
        for partition in chance.sample(range(2), 2):
            start = self._positions.get(partition, 0)
            records += self._world.logs.read(OPS, partition, start, start + chance.randint(1, MOST_OPS))
        return records

    def _apply(self, records: list[Record], chance: Random) -> None:
        world, after = self._world, {}
        transaction = world.store.begin()
        applied: list[Applying] = []
        for record in records:
            op: Op[Any] = record.value
            before = transaction.load(op)
            outcome = step(before, op, record.at_us, record.partition)
            transaction.save(before, outcome.state, record.at_us)
            for number, (cause, effect) in enumerate(outcome.effects):
                if isinstance(effect, StoreDefinition):
                    world.definitions[effect.definition.fingerprint] = effect.definition
                else:
                    transaction.keep(number, cause, effect, record.at_us)
            asked: dict[str, Op[Any]] = {op.id: op, **{waited.id: waited for waited in before.queue}}
            for answer in outcome.answers:
                transaction.answered(asked[answer.op_id], answer)
            applied.append(Applying(record, outcome, asked))
            after[record.partition] = record.offset + 1
        transaction.advance(OPS, self._positions, after)
        world.may_crash(chance)
        world.store.commit(transaction)
        self._positions = {**self._positions, **after}
        self._relaying = self._relay()
        world.watch.applied(applied)
        world.may_crash(chance)
        world.tell(applied)

    def _relay(self) -> Iterator[None]:
        world = self._world
        store = world.store.read()
        chunks, events, upto = list(store.outbox.items()), store.events[store.sent :], len(store.events)
        for _, chunk in chunks:
            world.append_chunk(chunk, 0)
            yield
        for import_id in list(store.closings):
            yield from self._close(import_id)
        for event in events:
            world.logs.append(EVENTS, 0 if event.tenant == "acme" else 1, event, world.now_us)
            yield
        if chunks or events:
            transaction = world.store.begin()
            transaction.forget([key for key, _ in chunks], upto)
            world.store.commit(transaction)
            yield

    def _close(self, import_id: str) -> Iterator[None]:
        """First the workers' stop list, then the markers: whatever is judged behind a marker is ignored."""
        world, markers = self._world, {}
        world.stop(import_id)
        yield
        for partition in range(RAW_PARTITIONS):
            markers[str(partition)] = world.logs.append(RAW, partition, import_id, world.now_us)
            yield
        transaction = world.store.begin()
        transaction.mark(import_id, markers)
        world.store.commit(transaction)
        yield


class Accountant:
    """Reads facts once the controller has applied every op that was in the log when the process started: a fact about an
    import that an old store does not know yet would be lost."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._positions = world.store.read().position(PROGRESS)
        self._checkpoints: dict[str, Checkpointed] = {}
        self._asked: set[tuple[str, str]] = set()
        self._begins_behind = world.logs.ends(OPS)
        self._has_begun = False

    @property
    def is_up_to_date(self) -> bool:
        reached = self._world.store.read().position(OPS)
        return all(reached.get(partition, 0) >= end for partition, end in self._begins_behind.items())

    def step(self, chance: Random) -> bool:
        if not self._has_begun:
            if not self.is_up_to_date:
                return False
            self._has_begun = True
            self.recheck(imp.id for imp in self._world.store.read().imports.values() if not imp.is_over)
            return True
        start = self._positions.get(0, 0)
        if start == self._world.logs.length[PROGRESS]:
            return False
        records = self._world.logs.read(PROGRESS, 0, start, start + chance.randint(1, MOST_FACTS))
        if records:
            self._account(records, chance)
        return bool(records)

    def _account(self, records: list[Record], chance: Random) -> None:
        facts = [record.value for record in records]
        after = {0: records[-1].offset + 1}
        transaction = self._world.store.begin()
        folded = transaction.fold(facts)
        transaction.advance(PROGRESS, self._positions, after)
        self._world.may_crash(chance)
        self._world.store.commit(transaction)
        self._positions = after
        self._world.may_crash(chance)
        passed = {fact.query: fact for fact in facts if isinstance(fact, Checkpointed)}
        self._checkpoints |= passed
        self._settle(folded.values())
        if passed:
            store = self._world.store.read()
            self.recheck(imp.id for imp in store.imports.values() if imp.state == STOPPING)

    def recheck(self, import_ids: Iterable[str]) -> None:
        imports = self._world.store.read().imports
        self._settle([imports[import_id] for import_id in import_ids if import_id in imports])

    def _settle(self, imports: Iterable[Import]) -> None:
        store, passed = self._world.store.read(), self._passed()
        for imp in imports:
            if (imp.id, SettleImport.KIND) in self._asked:
                continue
            chunks = store.chunks.get(imp.id, {})
            asked = due(
                imp, passed, partial(self._budget, imp), partial(_rejecting, chunks), partial(_first_failure, chunks)
            )
            if asked is not None and (imp.id, asked.kind) not in self._asked:
                self._asked.add((imp.id, asked.kind))
                self._world.ask(asked)

    def _budget(self, imp: Import) -> Budget:
        return self._world.definitions[imp.definition].table.budget

    def _passed(self) -> dict[str, int]:
        passed: dict[str, int] = {}
        for checkpoint in self._checkpoints.values():
            for partition, offset in checkpoint.ends[RAW].items():
                passed[partition] = max(passed.get(partition, 0), offset)
        return passed


def _rejecting(chunks: Mapping[int, ChunkVerdict]) -> int:
    return sum(verdict.rejected > 0 for verdict in chunks.values())


def _first_failure(chunks: Mapping[int, ChunkVerdict]) -> str | None:
    return next((verdict.failure for _, verdict in sorted(chunks.items()) if verdict.failure), None)
