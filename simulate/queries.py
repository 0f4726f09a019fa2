"""The streaming queries: batches planned before they are run, run again whole after a crash, then checkpointed."""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from millrace.model.chunk import ROWS, ChunkVerdict
from millrace.model.facts import Checkpointed, ChunkJudged, Durable
from millrace.model.sinks import ERROR_STORE
from simulate.content import LAKE, MIRROR, TABLES, Chunk, Judgement, judge
from simulate.logs import PARTITIONS, QUICK, RAW, REJECTED, VALIDATED, Record

if TYPE_CHECKING:
    from simulate.world import World

NOTHING = Judgement((), ())
TRIED_TWICE = 0.15
Effect = Callable[[], object]


class Group(NamedTuple):
    """What a worker passes on: chunks of one table with what was accepted of them (or rejected, for the error store)."""

    table: tuple[str, str]
    definition: str
    chunks: tuple[tuple[Chunk, Judgement], ...]


class Query:
    """Reads partitions of a log in batches. `position` is what its durable checkpoint says."""

    def __init__(self, world: "World", name: str, log: str, partitions: Iterable[int]) -> None:
        self.world = world
        self.name = name
        self._log = log
        self.position = dict.fromkeys(partitions, 0)
        self._planned: dict[int, int] | None = None
        self._todo: list[Effect] = []
        self._read = -1

    def step(self, chance: Random) -> bool:
        """Plans a batch, does one effect of it, or commits it. False if there was nothing to do."""
        if self._planned is None:
            if self._read == self.world.logs.length[self._log]:
                return False
            ends = self.world.logs.ends(self._log)
            behind = {partition: ends[partition] - at for partition, at in self.position.items()}
            if not any(behind.values()):
                self._read = self.world.logs.length[self._log]
                return False
            planned = {p: self.position[p] + chance.randint(0, count) for p, count in behind.items()}
            self._planned = planned if planned != self.position else {p: ends[p] for p in self.position}
            self.plan()
            self._todo = self._effects(chance)
        elif self._todo:
            self._todo.pop()()
        else:
            self.position, self._planned = self._planned, None
        return True

    @property
    def is_busy(self) -> bool:
        return bool(self._todo)

    def plan(self) -> None:
        """What is remembered with the planned batch, and survives its crashes."""

    def crash(self, chance: Random) -> None:
        """The planned batch is run again from its start."""
        if self._planned is not None:
            self._todo = self._effects(chance)

    def announce(self) -> None:
        ends = {str(partition): offset for partition, offset in self.position.items()}
        self.world.tell_progress(Checkpointed(self.name, {self._log: ends}, {}))

    def _effects(self, chance: Random) -> list[Effect]:
        """What the batch comes to, the first last."""
        assert self._planned is not None
        records = [
            self.world.logs.read(self._log, partition, start, self._planned[partition])
            for partition, start in self.position.items()
        ]
        return self.effects(records, chance)

    def effects(self, records: list[list[Record]], chance: Random) -> list[Effect]:
        raise NotImplementedError


class Told(NamedTuple):
    """What a task has to say about some chunks of one table."""

    table: tuple[str, str]
    judged: tuple[tuple[Chunk, Judgement], ...]
    verdicts: tuple[ChunkVerdict, ...]


class Validating(Query):
    """Whose import was stopped when the batch was planned is passed over, however often the batch is run."""

    def plan(self) -> None:
        self._stopped = frozenset(self.world.stops)

    def effects(self, records: list[list[Record]], chance: Random) -> list[Effect]:
        """Partitions are worked on side by side, each in order; some tasks are tried twice, and the first says it last."""
        queues = [[record.value for record in reversed(of) if isinstance(record.value, Chunk)] for of in records]
        todo: list[Effect] = []
        late: list[Effect] = []
        while any(queues):
            queue = chance.choice([queue for queue in queues if queue])
            group = [queue.pop()]
            while queue and chance.random() < 0.4 and _share_a_file(group[0], queue[-1]):
                group.append(queue.pop())
            todo.append(partial(self._say, tuple(group)))
            if chance.random() < TRIED_TWICE:
                late.append(partial(self._say, tuple(group)))
        return (todo + late)[::-1]

    def crash(self, chance: Random) -> None:
        """Of what a task had to say about the same chunks, any part may have been said."""
        if self._todo:
            for said in self._sayings(self._next()):
                if chance.random() < 0.5:
                    said()
        super().crash(chance)

    @property
    def judging(self) -> Chunk:
        return self._next()[0]

    def _next(self) -> tuple[Chunk, ...]:
        say = self._todo[-1]
        assert isinstance(say, partial)
        chunks: tuple[Chunk, ...] = say.args[0]
        return chunks

    def _say(self, chunks: tuple[Chunk, ...]) -> None:
        for said in self._sayings(chunks):
            said()

    def _judge(self, chunks: tuple[Chunk, ...]) -> Told:
        definition = self.world.definitions[chunks[0].definition]
        judged, verdicts = [], []
        for chunk in chunks:
            ignored = chunk.kind == ROWS and chunk.import_id in self._stopped
            found = NOTHING if ignored else judge(chunk, definition)
            judged.append((chunk, found))
            verdicts.append(_verdict(chunk, found, ignored))
        return Told((definition.tenant, definition.table.name), tuple(judged), tuple(verdicts))

    def _sayings(self, chunks: tuple[Chunk, ...]) -> list[Effect]:
        """Accepted rows, rejected rows and verdicts, each to its topic."""
        told, definition = self._judge(chunks), chunks[0].definition
        self.world.watch.judged(told.verdicts)
        sayings = [self._saying(VALIDATED, TABLES.index(told.table) % 2, Group(told.table, definition, told.judged))]
        rejecting = tuple((chunk, found) for chunk, found in told.judged if found.rejected)
        if rejecting:
            sayings.append(self._saying(REJECTED, 0, Group(told.table, definition, rejecting)))
        return [*sayings, partial(self.world.tell_progress, ChunkJudged(told.verdicts))]

    def _saying(self, log: str, partition: int, group: Group) -> Effect:
        return partial(self.world.logs.append, log, partition, group, self.world.now_us)


def _share_a_file(one: Chunk, other: Chunk) -> bool:
    together = one.definition == other.definition and one.kind == other.kind == ROWS
    return together and (one.publish == "rolling" == other.publish or one.import_id == other.import_id)


def _verdict(chunk: Chunk, found: Judgement, ignored: bool) -> ChunkVerdict:
    rows = len(chunk.rows)
    counts = (0, 0, rows) if ignored else (len(found.accepted), len(found.rejected), 0)
    return ChunkVerdict(chunk.import_id, chunk.number, chunk.version, rows, *counts, checksum=chunk.checksum)


class Sinking(Query):
    """First durable in the sink, then the fact that it is."""

    def __init__(self, world: "World", name: str, log: str, partitions: Iterable[int], sink: str) -> None:
        super().__init__(world, name, log, partitions)
        self._sink = sink

    def step(self, chance: Random) -> bool:
        return self._sink not in self.world.down and super().step(chance)

    def effects(self, records: list[list[Record]], chance: Random) -> list[Effect]:
        by_table: dict[tuple[str, str], list[Group]] = {}
        for group in (record.value for of in records for record in of):
            if self._sink in (ERROR_STORE, *self.world.definitions[group.definition].table.sinks):
                by_table.setdefault(group.table, []).append(group)
        todo: list[Effect] = []
        for table, groups in by_table.items():
            todo += [partial(self._write, table, groups), partial(self._tell, groups)]
        return todo[::-1]

    def _write(self, table: tuple[str, str], groups: list[Group]) -> None:
        if self._sink == ERROR_STORE:
            for group in groups:
                for chunk, found in group.chunks:
                    self.world.errors.keep(chunk, found)
        else:
            self.world.sinks[self._sink][table].write(groups)
            self.world.watch.sank(self._sink, table)

    def _tell(self, groups: list[Group]) -> None:
        chunks = tuple((chunk.import_id, chunk.number) for group in groups for chunk, _ in group.chunks)
        self.world.tell_progress(Durable(self._sink, chunks))


def all_queries(world: "World") -> dict[str, Query]:
    bulk = range(QUICK, PARTITIONS[RAW])
    return {
        "quick": Validating(world, "quick", RAW, range(QUICK)),
        "bulk": Validating(world, "bulk", RAW, bulk),
        "sink": Sinking(world, "sink", VALIDATED, range(PARTITIONS[VALIDATED]), LAKE),
        "mirror": Sinking(world, "mirror", VALIDATED, range(PARTITIONS[VALIDATED]), MIRROR),
        "errors": Sinking(world, "errors", REJECTED, range(PARTITIONS[REJECTED]), ERROR_STORE),
    }
