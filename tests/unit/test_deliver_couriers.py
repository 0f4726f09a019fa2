"""Couriers without Spark, Kafka and servers: what they deliver to a folder, and what they let go."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from millrace.declare.table import parse_table
from millrace.deliver import couriers
from millrace.deliver.backfill import Backfiller
from millrace.deliver.queue import Queue
from millrace.exchange.ends import EndBox, RowsAged
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.places import Places
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.model.chunk import PREPARE, PUBLISH
from millrace.model.errors import Unavailable
from millrace.model.facts import Durable, from_dict
from millrace.model.queues import FROM_LOG, UNDER_WAY, Backfill, Member, QueueKey, QueueState
from millrace.model.sinks import SinkTarget
from millrace.model.table import define
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.upkeep import Upkeep
from millrace.wire.envelope import unpack
from tests.support.queues import put, queues_of, state_of
from tests.support.waiting import wait_until

# Ids are ordered by time.
EARLIER, LATER = "imp_" + 26 * "0", "imp_" + 26 * "z"


class Here:
    """What the couriers ask of Spark, in this process."""

    def setLocalProperty(self, *_: Any) -> None: ...

    def parallelize(self, items: list[Any], _slices: int) -> Any:
        return SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(item) for item in items]))


class World:
    """A table whose sink writes files."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        schema = {"type": "record", "name": "events", "fields": [{"name": "id", "type": "long"}]}
        target = {"kind": "files", "name": "export", "path": (root / "exports").as_uri()}
        self.definition = define("acme", parse_table({"schema": schema, "sinks": [target]}), 1)
        self.home.definitions.mkdir(parents=True)
        self.home.definition(self.definition.fingerprint).write_bytes(self.definition.to_json())
        self.queues = queues_of(self.home)
        self.queue = Queue(Places(self.home), self.queues, QueueKey("files", "acme", "events", "export"))
        self.durable: list[tuple[str, int]] = []
        spark: Any = SimpleNamespace(sparkContext=Here())
        appender: Any = self
        exchange = open_exchange(root)
        context = SinkContext(exchange.places, files_root=root / "exports")
        self.couriers = couriers.Couriers(spark, exchange, context, appender, Upkeep(), self.queues)

    def append(self, _topic: str, _key: bytes, value: bytes, _partition: int) -> "Future[None]":
        fact = from_dict(unpack(value))
        assert isinstance(fact, Durable)
        self.durable += fact.chunks
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def park(self, *imports: tuple[str, int], **more: Any) -> None:
        """One group, a row of each import, by its version."""
        ids, versions = [one for one, _ in imports], [version for _, version in imports]
        table = Store(self.home.table("acme", "events"))
        rows = pa.table({"id": versions, "_version": versions, "_import": ids, "_row": [1 for _ in ids]})
        chunks = tuple(StagedChunk(f"{one}/0", place, 1, version) for place, (one, version) in enumerate(imports))
        staged = write_data_file(table, rows, (), ids[0], chunks)
        self._park(
            StagedGroup("acme", "events", self.definition.fingerprint, staged, tuple((one, 0) for one in ids), **more)
        )

    def hold(self, import_id: str, version: int) -> None:
        self.park((import_id, version), publish="atomic")

    def show(self, import_id: str, version: int) -> None:
        fingerprint = self.definition.fingerprint
        self._park(StagedGroup("acme", "events", fingerprint, None, ((import_id, 1),), PUBLISH, version))

    def settle(self, version: int) -> None:
        self.home.safe_version.parent.mkdir(parents=True, exist_ok=True)
        self.home.safe_version.write_text(str(version))

    def waiting(self) -> list[int]:
        return [item.version for item in self.queue.waiting()]

    def rows_here(self) -> list[Path]:
        return list(self.queue.pins.folder.glob("*.parquet"))

    def _park(self, group: StagedGroup) -> None:
        self.couriers.park("files", [group])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_waived_is_passed_over_and_not_told_as_durable(world: World) -> None:
    world.queues.waive(world.queue.key, 500)
    world.park((EARLIER, 100))
    world.show(EARLIER, 101)
    assert (world.waiting(), world.durable) == ([], [])


def test_a_replay_after_a_waive_is_delivered_under_its_old_versions(world: World) -> None:
    world.queues.waive(world.queue.key, 500)
    world.park((LATER, 100))
    world.couriers.start()
    wait_until(lambda: world.durable == [(LATER, 0)], 20, "it is durable")


def test_a_group_is_not_given_up_for_the_older_of_its_imports(world: World) -> None:
    world.queues.waive(world.queue.key, 500)
    world.park((EARLIER, 100), (EARLIER[:-1] + "1", 501))
    assert world.waiting() == [100]


def test_who_waives_gives_up_what_is_held_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.couriers.start()
    world.hold(EARLIER, 100)
    wait_until(lambda: not world.couriers._watched, 20, "nobody delivers from the queue")
    world.queues.waive(world.queue.key, 500)
    monkeypatch.setattr(couriers, "TAKE_UP_SECONDS", 0.0)
    wait_until(lambda: not world.queue.waiting(), 20, "nothing is held")
    wait_until(lambda: not world.rows_here(), 20, "nor on the disk")


def test_what_is_held_for_an_import_that_was_never_shown_goes_once_it_is_over(world: World) -> None:
    world.hold(EARLIER, 100)
    world.hold(LATER, 201)
    world.settle(200)
    world.couriers.start()
    wait_until(lambda: world.waiting() == [201], 20, "only the one under way is held")
    wait_until(lambda: len(world.rows_here()) == 1, 20, "and on the disk")


def test_what_is_held_is_delivered_if_the_word_is_there_however_old_it_is(world: World) -> None:
    world.hold(EARLIER, 100)
    world.show(EARLIER, 101)
    world.settle(200)
    world.durable.clear()
    world.couriers.start()
    wait_until(lambda: world.durable == [(EARLIER, 1)], 20, "it is shown")
    assert len(list(Path(world.home.root, "exports").rglob("*.parquet"))) == 1


def delivered(world: World) -> list[Path]:
    return list(Path(world.home.root, "exports").rglob("*.parquet"))


def test_a_data_plane_killed_behind_the_facts_delivers_again_and_doubles_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the rows of the queue are there, the delivery is not over."""
    world.park((EARLIER, 100))
    with monkeypatch.context() as dying:
        dying.setattr(world.queues, "finish", _dies)
        world.couriers.start()
        wait_until(lambda: len(world.durable) > 1, 20, "it is delivered again and again")
    assert world.waiting() == [100]
    wait_until(lambda: world.waiting() == [], 20, "in the end it is taken away")
    assert len(delivered(world)) == 1
    assert set(world.durable) == {(EARLIER, 0)}


def test_a_batch_that_could_not_be_parked_leaves_nothing_and_is_parked_by_the_next_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(world.queues, "park", _dies)
        with pytest.raises(OSError, match="the store is away"):
            world.park((EARLIER, 100))
    assert (world.waiting(), world.durable) == ([], [])
    world.park((EARLIER, 100))
    world.couriers.start()
    wait_until(lambda: world.durable == [(EARLIER, 0)], 20, "it is durable")
    wait_until(lambda: not world.rows_here(), 20, "and its pin is released")


def test_while_the_store_is_away_the_couriers_wait_and_go_on_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.park((EARLIER, 100))
    looks: list[object] = []
    with monkeypatch.context() as away:
        away.setattr(world.queues, "get", lambda key: looks.append(key) or _dies())
        away.setattr(world.queues, "finish", _dies)
        world.couriers.start()
        wait_until(lambda: len(looks) > 2, 30, "it is tried again")
    assert len(looks) < 10, "with pauses between"
    wait_until(lambda: world.durable == [(EARLIER, 0)], 30, "it is durable")


def test_a_notice_that_cannot_be_parked_keeps_no_delivery_from_its_target(world: World) -> None:
    EndBox(world.home).put(RowsAged("nobody-has-this-definition", 7))
    world.park((EARLIER, 100))
    world.couriers.start()
    wait_until(lambda: world.durable == [(EARLIER, 0)], 20, "it is durable")


def test_a_queue_whose_definition_is_gone_keeps_no_other_from_its_courier(world: World) -> None:
    lost = StagedGroup("acme", "lost", "nobody-has-this-definition", None, ((EARLIER, 1),), PUBLISH, 7)
    put(Queue(Places(world.home), world.queues, QueueKey("files", "acme", "lost", "export")), lost, world.home.root)
    world.park((EARLIER, 100))
    world.couriers._watched.clear()
    world.couriers.start()
    wait_until(lambda: world.durable == [(EARLIER, 0)], 20, "it is durable")


def test_rows_whose_file_is_lost_hold_up_only_their_own_queue(world: World) -> None:
    """As after the erasure of a tenant whose rows were not parked yet: the batch would fail for ever, for all tenants."""
    chunk, fingerprint = StagedChunk(f"{EARLIER}/0", 0, 1, 100), world.definition.fingerprint
    lost = StagedFile("lost.parquet", 4, 1, None, (chunk,))
    world._park(StagedGroup("acme", "events", fingerprint, lost, ((EARLIER, 0),)))
    assert world.waiting() == [100]
    world.couriers.start()
    wait_until(lambda: "lost.parquet" in (state_of(world.queues, world.queue.key).reason or ""), 20, "it says why")
    assert world.durable == []
    world.queues.waive(world.queue.key, 100)
    wait_until(lambda: not world.waiting(), 20, "it is given up")


@pytest.mark.parametrize("in_the_way", [Path.touch, lambda root: root.symlink_to(root)])
def test_rows_whose_folder_is_away_are_delivered_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, in_the_way: Callable[[Path], None]
) -> None:
    groups: list[StagedGroup] = []
    with monkeypatch.context() as staging:
        staging.setattr(world, "_park", groups.append)
        world.park((EARLIER, 100))
    root = world.home.table("acme", "events")
    root.rename(root.with_name("kept"))
    in_the_way(root)
    world._park(groups[0])
    assert world.waiting() == [100]
    world.couriers.start()
    wait_until(lambda: state_of(world.queues, world.queue.key).reason, 20, "it says why")
    assert world.durable == []
    root.unlink()
    root.with_name("kept").rename(root)
    world.queues.ask_to_resume(world.queue.key)
    wait_until(lambda: world.durable == [(EARLIER, 0)], 20, "it is durable")
    wait_until(lambda: not world.waiting(), 20, "nothing waits")


def test_an_order_to_resume_waits_for_a_courier_who_is_at_the_queue(world: World) -> None:
    """Another queue that has a pause makes the couriers look for orders meanwhile."""
    world.queues.waive(QueueKey("files", "acme", "events", "other"), 0)
    for key, is_busy in ((world.queue.key, True), (QueueKey("files", "acme", "events", "other"), False)):
        state = QueueState(tries=1, next_try=time.time() + 3600)
        world.couriers._watch(key, SinkTarget(key.target, "files"), state)
        world.couriers._watched[key].busy = is_busy
    world.queues.waive(world.queue.key, 0)
    world.queues.ask_to_resume(world.queue.key)
    world.couriers._begin_rounds()
    assert not any(watched.busy for key, watched in world.couriers._watched.items() if key != world.queue.key)
    assert world.queues.take_resumes([world.queue.key]) == {world.queue.key}


def test_a_back_fill_that_could_not_read_the_log_reads_it_again(world: World) -> None:
    """There is no other source: one bad moment must not make it impossible."""
    known, key = world.definition, world.queue.key
    looks: list[str] = []

    def retained() -> list[StagedGroup]:
        looks.append("look")
        if len(looks) == 1:
            raise Unavailable("The broker is away.")
        return [StagedGroup("acme", "events", known.fingerprint, None, (), PREPARE, 1)]

    added = known.generation, known.age[1] + 1
    member = Member(SinkTarget("export", "files"), known.fingerprint, added, added, None, Backfill())
    world.queues.change_members("files", "acme", "events", lambda _: {"export": member})
    backfiller = Backfiller(Places(world.home), world.queues, lambda _: known, retained)
    record = world.queues.get(key)
    assert record is not None
    with pytest.raises(Unavailable):
        backfiller.step(world.queue, record)
    backfiller.step(world.queue, record)
    record = world.queues.get(key)
    assert record is not None
    assert record.member is not None
    assert record.member.backfill is not None
    assert (record.member.backfill.state, record.member.backfill.source) == (UNDER_WAY, FROM_LOG)


def _dies(*_: object, **__: object) -> None:
    raise OSError("the store is away")
