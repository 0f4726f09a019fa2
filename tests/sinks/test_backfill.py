"""A target that comes to a table with a past ends with the same rows as the others, whatever flows at the same time."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millrace.declare.table import parse_table
from millrace.deliver import backfill
from millrace.deliver.backfill import Backfiller, ready_snapshot
from millrace.deliver.delivery import Order, deliver
from millrace.deliver.queue import Queue
from millrace.deliver.roster import Roster
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.lake import compact
from millrace.lake.log import Snapshot, load
from millrace.lake.read import scan, scan_files
from millrace.lake.schema import spec_of
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.queues import DONE, FROM_DELTA, FROM_LOG, Member, QueueKey
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition, define
from millrace.settings import KEYS_HERE
from millrace.sink.connector import Connector
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.sink import DeltaSink
from millrace.sink.delta.upkeep import Upkeep
from tests.sinks.conftest import postgres_target
from tests.support.lake import arrow_rows
from tests.support.queues import put, queues_of
from tests.support.reading_back import read_back
from tests.support.sink_context import open_target, sink_context

ID, TEXT = {"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}
Chunk = tuple[str, int, list[int]]
"""Its import, its version, the ids of its rows."""


class World:
    """One table: its records in the order of the log, a Delta sink and a late target that read them at their own pace."""

    def __init__(self, root: Path, target: SinkTarget, tenant: str, key: tuple[str, ...] = ("id",)) -> None:
        self.home, self.target, self.tenant, self.key = Home(root), target, tenant, key
        self.home.definitions.mkdir(parents=True)
        self.exchange = exchange = open_exchange(root)
        self.delta = DeltaSink(exchange.places, exchange.definitions, Upkeep(), exchange.keyring(KEYS_HERE))
        self.sink: Connector = open_target(target)
        self.retained: list[StagedGroup] = []
        self.before = self.define([{"kind": "delta", "name": "delta"}], 1, None)
        self.after = self.define(
            [{"kind": "delta", "name": "delta"}, {"kind": target.kind, "name": target.name, **target.settings}],
            2,
            self.before.fingerprint,
        )
        self.start()

    def start(self) -> None:
        """As a data plane that has just been started: knows what is in the store."""
        self.queues = queues_of(self.home)
        self.backfiller = Backfiller(self.exchange.places, self.queues, self._definition, lambda: self.retained)

    def define(self, sinks: list[Any], revision: int, previous: str | None) -> Definition:
        document = {"schema": {"type": "record", "name": "t", "fields": [ID, TEXT]}, "sinks": sinks}
        made = define(
            self.tenant, parse_table({**document, "primary_key": list(self.key)}), revision, previous=previous
        )
        self.home.definition(made.fingerprint).write_bytes(made.to_json())
        return made

    def _definition(self, fingerprint: str) -> Definition:
        return Definition.from_json(self.home.definition(fingerprint).read_bytes())

    @property
    def key_of_queue(self) -> QueueKey:
        return QueueKey(self.target.kind, self.tenant, "t", self.target.name)

    @property
    def member(self) -> Member:
        record = self.queues.get(self.key_of_queue)
        assert record is not None
        assert record.member is not None
        return record.member

    @property
    def store(self) -> Store:
        return Store(self.home.table(self.tenant, "t"))

    def rows(
        self, definition: Definition, version: int, *rows: tuple[int, bool], publish: str = "rolling"
    ) -> StagedGroup:
        table = arrow_rows([(key, version) for key, _ in rows])
        if self.key:
            table = table.append_column("_deleted", pa.array([deleted for _, deleted in rows]))
        chunk = StagedChunk(f"imp{version}/0", 0, len(rows), version)
        staged = write_data_file(self.store, table, self.key, f"imp{version}", (chunk,))
        chunks = ((f"imp{version}", 0),)
        return StagedGroup(self.tenant, "t", definition.fingerprint, staged, chunks, publish=publish)

    def keyless(self, definition: Definition, *chunks: Chunk) -> StagedGroup:
        """Whole chunks that were judged together."""
        staged, parts = [], []
        for import_id, version, ids in chunks:
            rows = arrow_rows([(key, version) for key in ids])
            own = pa.array([import_id] * len(ids))
            parts.append(rows.set_column(rows.schema.get_field_index("_import"), "_import", own))
            before = sum(chunk.rows for chunk in staged)
            staged.append(StagedChunk(f"{import_id}/0", before, len(ids), version))
        file = write_data_file(self.store, pa.concat_tables(parts), (), chunks[0][0], staged)
        named = tuple((import_id, 0) for import_id, _, _ in chunks)
        return StagedGroup(self.tenant, "t", definition.fingerprint, file, named)

    def change(self, definition: Definition, kind: str, version: int, import_id: str | None = None) -> StagedGroup:
        chunks = ((import_id or f"imp{version}", 0 if import_id is None else 1),)
        return StagedGroup(self.tenant, "t", definition.fingerprint, None, chunks, kind, version)

    def park(self, group: StagedGroup) -> None:
        """What the couriers do with a group."""
        definition = self._definition(group.definition)
        roster = Roster(self.queues, self._definition, self.target.kind, [(self.tenant, "t")])
        for key in roster.takers(definition):
            queue = Queue(self.exchange.places, self.queues, key)
            if group.file is not None or group.kind != "rows":
                put(queue, group, self.home.table(self.tenant, "t"))
            if group.kind == "publish" and roster.takes_late(key, definition):
                self.backfiller.note_published(key, group)

    def work(self, most: int = 1000) -> bool:
        """One round of a courier; True when nothing is left to do."""
        queue = Queue(self.exchange.places, self.queues, self.key_of_queue)
        record = self.queues.get(queue.key)
        if record is None:
            return True
        is_done = self.backfiller.step(queue, record)
        items = queue.items()[:most]
        if items:
            member = self.member
            order = Order(queue.pins, self.target, tuple(items), member.definition, member.added)
            outcome = deliver(order, self.exchange, sink_context())
            assert outcome.fault is None, outcome.message
            queue.done(items)
        return is_done and not items

    def in_delta(self) -> list[tuple[int, int]]:
        found = scan(self.store, load(self.store), ["id", "_version"])
        return sorted(zip(found["id"].to_pylist(), found["_version"].to_pylist(), strict=True))

    def in_target(self) -> list[tuple[int, int]]:
        found = read_back(self.sink, self.after)
        return sorted(zip(found["id"].to_pylist(), found["_version"].to_pylist(), strict=True))


@pytest.fixture
def target(request: pytest.FixtureRequest) -> SinkTarget:
    return postgres_target(request)


@pytest.fixture
def world(tmp_path: Path, target: SinkTarget, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, target, f"late_{request.node.name[5:45]}")
    yield made
    made.sink.close()


def finish(world: World) -> None:
    for _ in range(50):
        if world.work():
            return
    raise AssertionError("the back-fill does not end")


def test_it_is_filled_from_delta_and_says_so(world: World) -> None:
    world.delta.write([world.rows(world.before, 1, (1, False), (2, False))])
    world.delta.write([world.rows(world.before, 2, (2, False), (1, True), (3, False))])
    added = world.change(world.after, "prepare", 3)
    world.park(added)
    assert not world.work(), "Delta has not come so far yet"
    assert world.member.backfill
    assert world.member.backfill.state == "wanted"
    world.delta.write([added])
    finish(world)
    found = world.member.backfill
    assert found is not None
    assert (found.state, found.source, found.rows) == (DONE, FROM_DELTA, 2)
    assert world.in_target() == world.in_delta() == [(2, 2), (3, 2)]


def test_a_table_that_had_the_target_from_the_start_is_not_filled(world: World) -> None:
    first = world.define([{"kind": world.target.kind, "name": world.target.name, **world.target.settings}], 1, None)
    world.park(world.change(first, "prepare", 1))
    assert world.member.backfill is None


@pytest.mark.parametrize("seed", range(12))
def test_exact_whatever_flows_at_the_same_time(tmp_path: Path, target: SinkTarget, seed: int) -> None:
    """Old imports before, while and after the target comes, with deletes and duplicates, readers at their own pace, data
    planes that die at any moment."""
    chance = random.Random(seed)
    world = World(tmp_path, target, f"late_random_{seed}")
    old = [
        world.rows(world.before, 10 + n, *((chance.randrange(25), chance.random() < 0.3) for _ in range(6)))
        for n in range(14)
    ]
    chance.shuffle(old)
    cut = chance.randrange(len(old) + 1)
    new = [
        world.rows(world.after, 100 + n, *((chance.randrange(25), chance.random() < 0.2) for _ in range(4)))
        for n in range(5)
    ]
    behind = [*old[cut:], *new, world.change(world.before, "truncate", 12)][: chance.randrange(5, 25)]
    chance.shuffle(behind)
    records = [*old[:cut], world.change(world.after, "prepare", 50), *behind]
    at_delta = at_target = 0
    while at_delta < len(records) or at_target < len(records):
        if at_delta < len(records) and chance.random() < 0.5:
            world.delta.write([records[at_delta]])
            at_delta += 1
            if chance.random() < 0.2:
                LakeTable(world.store, _spec(world)).maintain()
        elif at_target < len(records):
            world.park(records[at_target])
            # A batch that is run again after a crash parks its records again.
            at_target = max(at_target - chance.randrange(3), 0) if chance.random() < 0.1 else at_target + 1
        if chance.random() < 0.4:
            world.work(chance.randrange(1, 5))
        if chance.random() < 0.15:
            world.start()
    finish(world)
    assert world.in_target() == world.in_delta()
    world.sink.close()


@pytest.fixture
def keyless(tmp_path: Path, target: SinkTarget, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, target, f"late_{zlib.crc32(request.node.name.encode())}", key=())
    yield made
    made.sink.close()


def test_rows_without_a_key_come_once(keyless: World) -> None:
    groups = [keyless.keyless(keyless.before, (f"imp{n}", 10 + n, [n, n])) for n in range(4)]
    keyless.delta.write(groups[:2])
    keyless.park(keyless.change(keyless.after, "prepare", 50))
    keyless.delta.write([keyless.change(keyless.after, "prepare", 50), *groups[2:]])
    # Delta is ahead: what the target gets by itself is in the snapshot, too.
    for group in groups[2:]:
        keyless.park(group)
    keyless.work(2)
    keyless.start()
    finish(keyless)
    keyless.queues.change_members(
        keyless.target.kind,
        keyless.tenant,
        "t",
        lambda members: {name: member.wanting() for name, member in members.items()},
    )
    finish(keyless)
    assert keyless.in_target() == keyless.in_delta() == [(n, 10 + n) for n in range(4) for _ in range(2)]


@pytest.mark.parametrize("is_compacted", [True, False], ids=["one_file", "a_file_each"])
@pytest.mark.parametrize("came", [(), ("origin",), ("again",), ("origin", "again"), None])
def test_a_replay_of_the_same_version_is_another_chunk(
    keyless: World, monkeypatch: pytest.MonkeyPatch, came: tuple[str, ...] | None, is_compacted: bool
) -> None:
    """`came` is what the target got by itself; None: nothing, and the table remembers no chunks any more."""
    monkeypatch.setattr(compact, "MOST_SMALL_FILES", 1)
    parts = {
        "origin": keyless.keyless(keyless.before, ("imp1", 10, [1, 1]), ("imp2", 11, [2])),
        "again": keyless.keyless(keyless.before, ("imp3", 10, [3]), ("imp4", 12, [4])),
    }
    added = keyless.change(keyless.after, "prepare", 50)
    keyless.delta.write([*parts.values(), added])
    if is_compacted:
        LakeTable(keyless.store, _spec(keyless)).maintain()
        assert len(load(keyless.store).files) == 1
    if came is None:
        monkeypatch.setattr(backfill, "ready_snapshot", lambda *told: _forgotten(ready_snapshot(*told)))
    keyless.park(added)
    for name in came or ():
        keyless.park(parts[name])
    finish(keyless)
    assert keyless.in_target() == keyless.in_delta() == [(1, 10), (1, 10), (2, 11), (3, 10), (4, 12)]


def test_a_chunk_that_came_twice_is_taken_from_where_it_lives(keyless: World) -> None:
    """A batch that is run again may be cut another way: then a file holds a dead copy of a chunk of another one."""
    chunks: list[Chunk] = [(f"imp{n}", n, [n]) for n in range(10, 30)]
    for chunk, following in pairwise(chunks):
        keyless.delta.write([keyless.keyless(keyless.before, chunk)])
        keyless.delta.write([keyless.keyless(keyless.before, chunk, following)])
    added = keyless.change(keyless.after, "prepare", 50)
    keyless.delta.write([added])
    keyless.park(added)
    finish(keyless)
    assert keyless.in_target() == keyless.in_delta() == [(n, n) for n in range(10, 30)]


def assert_each_chunk_lives_in_one_file(world: World) -> None:
    """The back-fill relies on it: the second of two files would be taken for the first come again."""
    files = scan_files(world.store, load(world.store), ["_import", "_version"])
    found = [chunk for file in files for chunk in set(zip(*file.to_pydict().values(), strict=True))]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("seed", range(8))
def test_exact_without_a_key_whatever_flows_at_the_same_time(
    keyless: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Replays, chunks judged again in other company, compactions, a table that is read before and after the target came."""
    monkeypatch.setattr(compact, "MOST_SMALL_FILES", 2)
    chance = random.Random(seed)
    chunks: list[Chunk] = [(f"imp{n}", 10 + n % 6, [n] * chance.randrange(1, 4)) for n in range(18)]
    company = [[chance.choice(chunks[at::6]) for at in chance.sample(range(6), 3)] for _ in range(12)]
    company += [chunks[:6], chunks[6:12], chunks[12:]]
    records = [keyless.keyless(keyless.before, *one) for one in company]
    records.insert(chance.randrange(len(records)), keyless.change(keyless.after, "prepare", 50))
    at_delta = at_target = 0
    while at_delta < len(records) or at_target < len(records):
        if at_delta < len(records) and chance.random() < 0.5:
            keyless.delta.write([records[at_delta]])
            at_delta += 1
            if chance.random() < 0.3:
                LakeTable(keyless.store, _spec(keyless)).maintain()
            assert_each_chunk_lives_in_one_file(keyless)
        elif at_target < len(records):
            keyless.park(records[at_target])
            at_target += 1
        if chance.random() < 0.4:
            keyless.work(chance.randrange(1, 5))
        if chance.random() < 0.15:
            keyless.start()
    finish(keyless)
    assert keyless.in_target() == keyless.in_delta()
    assert len(keyless.in_delta()) == sum(len(ids) for _, _, ids in chunks)


def test_an_import_that_was_held_when_the_target_came_is_not_missed(world: World) -> None:
    held = world.rows(world.before, 10, (1, False), publish="atomic")
    added, shown = world.change(world.after, "prepare", 50), world.change(world.before, "publish", 11, "imp10")
    for group in (held, added):
        world.delta.write([group])
        world.park(group)
    finish(world)
    assert world.in_target() == []
    world.park(shown)
    world.work()
    world.delta.write([shown])
    finish(world)
    assert world.in_target() == world.in_delta() == [(1, 10)]


def test_without_another_sink_to_read_from_it_says_so(tmp_path: Path, target: SinkTarget) -> None:
    world = World(tmp_path, target, "late_alone")
    other = {"kind": target.kind, "name": "first", **target.settings}
    one = world.define([other], 1, None)
    two = world.define([other, {**other, "name": target.name}], 2, one.fingerprint)
    world.park(world.change(two, "prepare", 5))
    finish(world)
    found = world.member.backfill
    assert found is not None
    assert (found.state, found.source) == ("impossible", None)
    assert "delta" in found.reason
    world.sink.close()


def test_a_target_that_went_gets_what_began_before(world: World) -> None:
    world.delta.write([world.change(world.after, "prepare", 3)])
    world.park(world.change(world.after, "prepare", 3))
    finish(world)
    gone = world.define([{"kind": "delta", "name": "delta"}], 3, world.after.fingerprint)
    world.park(world.change(gone, "prepare", 9))
    assert not world.member.is_active
    world.park(world.rows(world.after, 7, (1, False)))
    world.park(world.rows(gone, 11, (2, False)))
    finish(world)
    assert world.in_target() == [(1, 7)], "what was imported without it stays away"


def _spec(world: World) -> Any:
    return spec_of(world.after)


def _forgotten(snapshot: Snapshot | None) -> Snapshot | None:
    """As after the time for which a table remembers its chunks."""
    return None if snapshot is None else replace(snapshot, transactions={})


def test_a_table_that_is_younger_than_the_log_is_filled_from_there(world: World) -> None:
    records = [
        world.change(world.before, "prepare", 5),
        world.rows(world.before, 10, (1, False), (2, False)),
        world.rows(world.before, 12, (3, False), (1, True)),
        world.change(world.after, "prepare", 50),
    ]
    world.retained = [replace(records[1], table="another"), *records]
    world.start()
    for group in records:
        world.park(group)
    finish(world)
    found = world.member.backfill
    assert found is not None
    assert (found.state, found.source, found.rows) == (DONE, FROM_LOG, 3)
    assert world.in_target() == [(2, 10), (3, 12)], "and Delta was not asked"


def test_a_log_that_lost_the_beginning_or_the_rows_is_not_believed(world: World) -> None:
    records = [world.rows(world.before, 10, (1, False), (2, False)), world.change(world.after, "prepare", 50)]
    world.delta.write(records)
    world.retained = records
    world.start()
    world.park(records[-1])
    finish(world)
    assert world.member.backfill
    assert world.member.backfill.source == FROM_DELTA
    assert world.in_target() == [(1, 10), (2, 10)]


@pytest.mark.parametrize("seed", range(8))
def test_replays_of_one_import_come_once_in_any_company(keyless: World, seed: int) -> None:
    """They share versions, and chunks that were judged together share a file."""
    chance = random.Random(seed)
    chunks: list[Chunk] = [(f"imp{n}", 10 + n % 3, [n] * chance.randrange(1, 4)) for n in range(9)]
    company = [chance.sample(chunks, chance.randrange(1, 7)) for _ in range(5)] + [chunks]
    added = keyless.change(keyless.after, "prepare", 5)
    keyless.delta.write([added])
    for group in (added, *(keyless.keyless(keyless.after, *one) for one in company)):
        keyless.park(group)
        finish(keyless)
    assert keyless.in_target() == sorted((one, version) for _, version, ids in chunks for one in ids)
