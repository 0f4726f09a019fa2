"""Couriers without Spark and Kafka: what is parked reaches its target, however that is doing, and the ledger hears of it."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millrace.declare.table import parse_table
from millrace.deliver.couriers import Couriers
from millrace.deliver.delivery import BUDGET_SECONDS, Delivered
from millrace.deliver.pace import after_failure
from millrace.deliver.queue import Queue
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.places import Places
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.model.facts import Durable, RowsRefused, from_dict
from millrace.model.queues import QueueKey, QueueState
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition, define
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.upkeep import Upkeep
from millrace.wire.envelope import unpack
from millrace.wire.topics import IMPORT_ERROR, PROGRESS
from tests.sinks.conftest import postgres_target
from tests.support.queues import queues_of, state_of
from tests.support.sink_context import sink_context
from tests.support.waiting import wait_until


class Here:
    """What the couriers ask of Spark, in this process."""

    def setLocalProperty(self, *_: Any) -> None: ...

    def parallelize(self, items: list[Any], _slices: int) -> Any:
        return SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(item) for item in items]))


class Told:
    """An appender that remembers."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []

    def append(self, topic: str, _key: bytes, value: bytes, _partition: int) -> "Future[None]":
        self.records.append((topic, value))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def facts(self) -> list[Any]:
        return [from_dict(unpack(value)) for topic, value in self.records if topic == PROGRESS]

    def durable(self) -> set[tuple[str, int]]:
        return {chunk for fact in self.facts() if isinstance(fact, Durable) for chunk in fact.chunks}


class World:
    def __init__(self, root: Path, tenant: str, *targets: SinkTarget) -> None:
        self.home, self.tenant, self.told = Home(root), tenant, Told()
        self.home.definitions.mkdir(parents=True)
        self.queues = queues_of(self.home)
        self.targets = targets
        sinks = [{"kind": one.kind, "name": one.name, **one.settings} for one in targets]
        fields = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
        document = {"schema": {"type": "record", "name": "t", "fields": fields}, "primary_key": ["id"], "sinks": sinks}
        self.definition: Definition = define(tenant, parse_table(document), 1)
        self.home.definition(self.definition.fingerprint).write_bytes(self.definition.to_json())
        self.couriers = self.start()

    def start(self) -> Couriers:
        spark: Any = SimpleNamespace(sparkContext=Here())
        appender: Any = self.told
        exchange = open_exchange(self.home.root)
        couriers = Couriers(spark, exchange, sink_context(), appender, Upkeep(), self.queues)
        couriers.start()
        return couriers

    def park(self, number: int, *texts: str) -> None:
        version = 100 + number
        rows = pa.table(
            {
                "id": pa.array(range(len(texts)), pa.int64()),
                "text": pa.array(texts, pa.string()),
                "_version": pa.array([version] * len(texts), pa.int64()),
                "_import": pa.array([f"imp{number}"] * len(texts)),
                "_row": pa.array(range(1, len(texts) + 1), pa.int64()),
            }
        )
        chunk = StagedChunk(f"imp{number}/0", 0, len(texts), version)
        store = Store(self.home.table(self.tenant, "t"))
        staged = write_data_file(store, rows, ("id",), f"imp{number}", (chunk,))
        group = StagedGroup(self.tenant, "t", self.definition.fingerprint, staged, ((f"imp{number}", 0),))
        self.couriers.park("postgres", [group])

    def key(self, target: SinkTarget) -> QueueKey:
        return QueueKey(target.kind, self.tenant, "t", target.name)

    def state(self, target: SinkTarget) -> QueueState:
        return state_of(self.queues, self.key(target))

    def waiting(self, target: SinkTarget) -> int:
        return self.queues.backlog(self.key(target)).waiting


@pytest.fixture
def target(request: pytest.FixtureRequest) -> SinkTarget:
    return postgres_target(request)


@pytest.fixture
def stored(postgres_dsn: str) -> Iterator[Any]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield lambda tenant: connection.execute(f'SELECT id, text FROM "{tenant}".t ORDER BY id').fetchall()


def test_what_is_parked_arrives_and_is_told(tmp_path: Path, target: SinkTarget, stored: Any) -> None:
    world = World(tmp_path, "courier_fine", target)
    for number in range(3):
        world.park(number, f"round {number}", "same")
    wait_until(lambda: len(world.told.durable()) == 3, 30, "everything is durable")
    wait_until(lambda: world.waiting(target) == 0, 30, "nothing is left behind")
    assert stored("courier_fine") == [(0, "round 2"), (1, "same")]
    wait_until(lambda: world.state(target).last_version == 102, 30, "and how far it is can be seen")


def test_a_row_that_is_refused_is_counted_before_the_chunk_is_durable(
    tmp_path: Path, target: SinkTarget, stored: Any
) -> None:
    world = World(tmp_path, "courier_choosy", target)
    world.park(0, "fine", "nul \x00 in it", "fine, too")
    wait_until(world.told.durable, 30, "the rest is durable")
    kinds = [type(fact).__name__ for fact in world.told.facts()]
    assert kinds == ["RowsRefused", "Durable"]
    refused = next(fact for fact in world.told.facts() if isinstance(fact, RowsRefused))
    assert refused.chunks == (("imp0", 0, 1),)
    assert sum(topic == IMPORT_ERROR for topic, _ in world.told.records) == 1
    assert stored("courier_choosy") == [(0, "fine"), (2, "fine, too")]


def test_a_dead_target_holds_up_nobody_but_itself_and_gets_all_when_it_is_back(
    tmp_path: Path, target: SinkTarget, stored: Any
) -> None:
    dead = replace(target, name="dead", settings={**target.settings, "port": 1})
    world = World(tmp_path, "courier_dead", target, dead)
    world.park(0, "a")
    wait_until(lambda: world.state(dead).parked_since, 30, "one is parked")
    reason = world.state(dead).reason
    assert reason
    assert "Connection refused" in reason or "is away" in reason
    wait_until(world.told.durable, 30, "the other has it")
    for number in range(1, 4):
        world.park(number, f"round {number}")
    wait_until(lambda: stored("courier_dead") == [(0, "round 3")], 30, "the other goes on")
    assert world.waiting(dead) == 4
    # A courier that is started anew finds what waits, and a target that is where it should be.
    world.definition = _moved(world, replace(dead, settings=target.settings))
    world.park(4, "round 4")
    world.queues.ask_to_resume(world.key(dead))
    wait_until(lambda: world.waiting(dead) == 0, 40, "the backlog is gone")
    wait_until(lambda: world.state(dead).parked_since is None, 30, "it is well again")


def _moved(world: World, target: SinkTarget) -> Definition:
    """The table's next definition, in which the target is somewhere else."""
    table = replace(world.definition.table, targets=(world.targets[0], target))
    made = define(world.tenant, table, 2, previous=world.definition.fingerprint)
    world.home.definition(made.fingerprint).write_bytes(made.to_json())
    return made


def test_what_is_given_up_is_forgotten(tmp_path: Path, target: SinkTarget) -> None:
    dead = replace(target, settings={**target.settings, "port": 1})
    world = World(tmp_path, "courier_waived", dead)
    world.park(0, "a")
    wait_until(lambda: world.state(dead).parked_since, 30, "it is parked")
    world.queues.waive(world.key(dead), 150)
    world.queues.ask_to_resume(world.key(dead))
    wait_until(lambda: world.waiting(dead) == 0, 30, "nothing waits any more")
    assert world.told.durable() == set(), "nobody says that it is there"


def test_a_data_plane_that_died_goes_on_where_it_was(tmp_path: Path, target: SinkTarget, stored: Any) -> None:
    dead = replace(target, settings={**target.settings, "port": 1})
    world = World(tmp_path, "courier_again", dead)
    world.park(0, "a")
    wait_until(lambda: world.state(dead).parked_since, 30, "it is parked")
    world.targets = (target,)
    world.definition = define(
        world.tenant, replace(world.definition.table, targets=(target,)), 2, previous=world.definition.fingerprint
    )
    world.home.definition(world.definition.fingerprint).write_bytes(world.definition.to_json())
    world.couriers = world.start()
    world.park(1, "b")
    world.queues.ask_to_resume(world.key(target))
    wait_until(lambda: world.told.durable() == {("imp0", 0), ("imp1", 0)}, 40, "both arrive")
    assert stored("courier_again") == [(0, "b")]


def test_a_slow_target_gets_less_at_once_and_in_the_end_more_time(tmp_path: Path, target: SinkTarget) -> None:
    world = World(tmp_path, "courier_slow", replace(target, settings={**target.settings, "port": 1}))
    world.park(0, "a")
    world.park(1, "b")
    items, late = (
        Queue(Places(world.home), world.queues, world.key(target)).items(),
        Delivered("sink", "late", is_late=True),
    )
    state = after_failure(QueueState(), late, items, 0.0)
    assert (state.most_rows, state.budget_seconds) == (1, None)
    for expected in (2 * BUDGET_SECONDS, 4 * BUDGET_SECONDS):
        state = after_failure(state, late, items[:1], 0.0)
        assert state.budget_seconds == expected
