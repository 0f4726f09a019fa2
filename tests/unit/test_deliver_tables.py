"""Tables that cannot be written, beside others: what fails waits in order and arrives once, and nobody else waits for it."""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from millrace.deliver import table_couriers, tables
from millrace.deliver.fact_writer import FactWriter
from millrace.deliver.table_couriers import TableCouriers
from millrace.deliver.tables import TableWriter
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.pins import Pins
from millrace.lake import index, long_work
from millrace.lake.errors_table import ERRORS_SCHEMA, REJECTED_SCHEMA, stored_rejected
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.model.chunk import ChunkVerdict
from millrace.model.facts import Durable, from_dict
from millrace.model.queues import QueueState, own_queue
from millrace.model.table import Definition, TableDeclaration, define
from millrace.plane.task import write_somewhere
from millrace.settings import KEYS_HERE, LakeSettings
from millrace.sink.context import SinkContext
from millrace.sink.contract import Sink, StagedGroup
from millrace.sink.delta.sink import DeltaSink, ErrorStore
from millrace.sink.delta.upkeep import Upkeep
from millrace.store.erasing import forget_queues
from millrace.wire.envelope import unpack
from tests.support.broken_tables import WAYS, garbage_entry, lost_files, no_access, no_folder
from tests.support.queues import queues_of, state_of
from tests.support.revisions import column, row_table, stage_under
from tests.support.waiting import wait_until

DELETED = "the key is deleted"


class World:
    """A data plane without Spark and Kafka."""

    def __init__(self, root: Path, *, key: tuple[str, ...] = ("id",)) -> None:
        self.home, self.exchange, self.key = Home(root), open_exchange(root), key
        self.home.definitions.mkdir(parents=True, exist_ok=True)
        self.queues = queues_of(self.home)
        self.durable: list[tuple[str, int]] = []
        self.start()

    def start(self) -> None:
        """A new process: nothing is left in memory."""
        exchange, keyring, appender = self.exchange, self.exchange.keyring(KEYS_HERE), Told(self.durable)
        self.delta: Sink = DeltaSink(exchange.places, exchange.definitions, Upkeep(), keyring)
        self.errors: Sink = ErrorStore(SinkContext(exchange.places), ERRORS_SCHEMA, Upkeep(), keyring)
        facts = FactWriter(exchange.places, appender, keyring)
        self.couriers = TableCouriers(exchange, self.queues, facts, (self.delta, self.errors))
        self.couriers.start()

    def define(self, table: str) -> Definition:
        schema = {"type": "record", "name": table, "fields": [column("id", "string"), column("text", "string")]}
        made = define("acme", TableDeclaration(table, schema, self.key), 1)
        self.home.definition(made.fingerprint).write_bytes(made.to_json())
        return made

    def group(self, table: str, version: int, *texts: str) -> StagedGroup:
        definition = self.define(table)
        rows = [
            {"id": str(number), **({"_deleted": True} if text == DELETED else {"text": text})}
            for number, text in enumerate(texts)
        ]
        staged = stage_under(Store(self.folder(table)), definition, version, rows, f"imp{version}")
        return StagedGroup("acme", table, definition.fingerprint, staged, ((f"imp{version}", 0),))

    def aside(self, table: str, version: int, *texts: str) -> StagedGroup:
        """Staged as the worker does it while the table's folder takes nothing."""
        definition = self.define(table)
        rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
        content, chunk = row_table(definition, version, rows)
        stores = Store(self.folder(table)), Store(self.home.staged("acme", table))
        staged = write_somewhere(stores, content, self.key, f"imp{version}", (chunk,))
        assert staged.is_aside
        return StagedGroup("acme", table, definition.fingerprint, staged, ((f"imp{version}", 0),))

    def rejected(self, table: str, number: int) -> StagedGroup:
        verdict = ChunkVerdict(f"imp{number}", 0, number, 1, 0, 1)
        row = pa.table([[number], [0], [b""], [[]]], schema=REJECTED_SCHEMA)
        chunk = StagedChunk(f"imp{number}/0", 0, 1, number)
        store = Store(self.home.table_errors("acme", table))
        staged = write_data_file(store, stored_rejected(verdict, row), (), f"imp{number}", (chunk,))
        return StagedGroup("acme", table, self.define(table).fingerprint, staged, ((f"imp{number}", 0),))

    def write(self, *groups: StagedGroup, sink: Sink | None = None) -> list[str]:
        """A batch of the query. The tables that had theirs at once."""
        kept = list(TableWriter(sink or self.delta, self.couriers).write(groups))
        self.durable += [chunk for of_table in kept for group in of_table for chunk in group.chunks]
        return [of_table[0].table for of_table in kept]

    def folder(self, table: str) -> Path:
        return self.home.table("acme", table)

    def texts(self, table: str) -> dict[str, str]:
        return dict(pl.read_delta(str(self.folder(table))).select("id", "text").rows())

    def state(self, table: str, sink: str = "delta") -> QueueState:
        return state_of(self.queues, own_queue(sink, "acme", table))

    def waiting(self, table: str, sink: str = "delta") -> int:
        return self.queues.backlog(own_queue(sink, "acme", table)).waiting

    def pinned(self, table: str, sink: str = "delta") -> int:
        return len(list(self.exchange.places.pins(own_queue(sink, "acme", table)).folder.glob("*")))

    def resume(self, table: str, sink: str = "delta") -> None:
        self.queues.ask_to_resume(own_queue(sink, "acme", table))


class Told:
    def __init__(self, durable: list[tuple[str, int]]) -> None:
        self._durable = durable

    def append(self, _topic: str, _key: bytes, value: bytes, _partition: int) -> "Future[None]":
        fact = from_dict(unpack(value))
        assert isinstance(fact, Durable)
        self._durable += fact.chunks
        done: Future[None] = Future()
        done.set_result(None)
        return done


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    assert world.write(world.group("bad", 1, "a", "b"), world.group("good", 2, "a")) == ["good", "bad"]
    world.write(world.group("bad", 3, "a", "b"))
    return world


@pytest.mark.parametrize("way", WAYS)
def test_a_table_broken_in_any_way_waits_alone_and_gets_all_when_it_is_mended(world: World, way: str) -> None:
    repair = WAYS[way](world.folder("bad"))
    # Some damage is noticed by who opens the table.
    world.start()
    assert world.write(world.group("bad", 4, "first"), world.group("good", 5, "first")) == ["good"]
    assert world.write(world.group("bad", 6, "second"), world.group("good", 7, "second")) == ["good"]
    state = wait_until(lambda: (found := world.state("bad")).parked_since and found, 20, "it is parked")
    assert "lake/acme/bad" in (state.reason or ""), "it says what is wrong with which folder, and the remedy"
    assert str(world.home.root) not in (state.reason or ""), "tenants read it"
    assert world.waiting("bad") == 2
    assert ("imp4", 0) not in world.durable
    repair()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "second", "1": "b"}
    assert world.texts("good") == {"0": "second"}
    assert [chunk for chunk in world.durable if chunk[0] in ("imp4", "imp6")] == [("imp4", 0), ("imp6", 0)]
    wait_until(lambda: world.state("bad").parked_since is None, 20, "it is well again")
    wait_until(lambda: world.write(world.group("bad", 8, "third")) == ["bad"], 20, "and is written directly")


def test_a_new_process_knows_which_tables_have_something_waiting(world: World) -> None:
    repair = garbage_entry(world.folder("bad"))
    world.write(world.group("bad", 4, "first"))
    repair()
    # The old process died here; its courier does not come back.
    world.queues.finish(own_queue("delta", "acme", "bad"), state=QueueState(tries=9, next_try=time.time() + 3600))
    world.start()
    assert world.write(world.group("bad", 6, "second")) == [], "it does not overtake"
    assert world.texts("bad") == {"0": "a", "1": "b"}
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "both are there")
    assert world.texts("bad") == {"0": "second", "1": "b"}


def test_chunks_without_rows_that_waited_are_reported(world: World) -> None:
    """All rows of such a chunk were rejected. Its import ends only when every sink has reported it."""
    repair = garbage_entry(world.folder("bad"))
    definition = world.define("bad").fingerprint
    without_rows = StagedGroup("acme", "bad", definition, None, (("imp_01m7jdme494h128m7aftcs0jz9", 0),))
    world.write(world.group("bad", 4, "first"))
    world.write(without_rows)
    assert world.waiting("bad") == 2
    repair()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert without_rows.chunks[0] in world.durable


def test_a_batch_that_is_repeated_parks_the_same_once(world: World) -> None:
    repair = garbage_entry(world.folder("bad"))
    batch = [world.group("bad", 4, "first"), world.group("bad", 6, "second")]
    world.write(*batch)
    world.start()
    world.write(*batch)
    assert world.waiting("bad") == 2
    repair()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "second", "1": "b"}


def test_rows_without_a_key_that_waited_are_there_once(tmp_path: Path) -> None:
    world = World(tmp_path, key=())
    world.write(world.group("bad", 1, "a"))
    repair = garbage_entry(world.folder("bad"))
    batch = [world.group("bad", 4, "b"), world.group("bad", 5, "c")]
    world.write(*batch)
    repair()
    world.start()
    world.write(*batch)
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    world.write(*batch)
    texts = pl.read_delta(str(world.folder("bad")))["text"].to_list()
    assert sorted(texts) == ["a", "b", "c"]


def test_what_waits_survives_the_vacuum_of_its_table(world: World) -> None:
    repair = garbage_entry(world.folder("bad"))
    group = world.group("bad", 4, "first", DELETED)
    world.write(group)
    assert group.file is not None
    assert group.file.tombstones
    parts = group.file.parts
    wait_until(lambda: world.pinned("bad") == len(parts), 20, "its files are pinned")
    for part in parts:
        (world.folder("bad") / part).unlink()
    repair()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "first"}
    wait_until(lambda: not world.pinned("bad"), 20, "the pins are gone")


def no_access_to_folder(root: Path) -> Callable[[], object]:
    """Root may enter every folder, except a link that leads nowhere."""
    if os.geteuid() != 0:
        root.chmod(0)
        return lambda: root.chmod(0o755)
    kept = root.with_name(f"{root.name}.kept")
    root.rename(kept)
    root.symlink_to(root)

    def repair() -> None:
        root.unlink()
        kept.rename(root)

    return repair


@pytest.mark.parametrize("damage", [no_folder, no_access_to_folder])
def test_rows_staged_in_a_folder_that_is_then_unusable_wait_there_for_its_mending(
    world: World, damage: Callable[[Path], Callable[[], object]]
) -> None:
    staged = world.group("bad", 4, "first", DELETED), world.group("good", 5, "first")
    later = world.group("bad", 6, "second")
    repair = damage(world.folder("bad"))
    world.start()
    assert world.write(*staged) == ["good"]
    assert world.write(later, world.group("good", 7, "second")) == ["good"]
    assert world.waiting("bad") == 2
    assert "lake/acme/bad" in (world.state("bad").reason or "")
    repair()
    # A vacuum between the mending and the delivery, once the courier has pinned them, does no harm either.
    again = garbage_entry(world.folder("bad"))
    world.resume("bad")
    parts = {part for group in (staged[0], later) if group.file for part in group.file.parts}
    wait_until(lambda: world.pinned("bad") == len(parts), 20, "they are pinned")
    for part in parts:
        (world.folder("bad") / part).unlink()
    again()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "second"}
    assert {("imp4", 0), ("imp6", 0)} <= set(world.durable)


def test_a_table_whose_disk_stops_answering_holds_neither_query_nor_courier(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 0.2)
    may_go = threading.Event()
    pin = Pins.pin

    def silent(pins: Pins, source: Path, part: str) -> int:
        assert "bad" not in str(source) or may_go.wait(60)
        return pin(pins, source, part)

    monkeypatch.setattr(Pins, "pin", silent)
    slow = Slow(world.delta)
    began = time.monotonic()
    for version in (4, 6, 8):
        batch = world.group("bad", version, f"v{version}"), world.group("good", version + 1, "x")
        assert world.write(*batch, sink=slow) == ["good"]
    assert world.write(world.rejected("good", 10), sink=world.errors) == ["good"]
    garbage_entry(world.home.table_errors("acme", "good"))
    assert world.write(world.rejected("good", 11), sink=world.errors) == [], "another one is parked meanwhile"
    wait_until(lambda: world.pinned("good", "errors"), 20, "and pinned")
    assert time.monotonic() - began < 20
    slow.may_go.set()
    may_go.set()
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "v8", "1": "b"}
    wait_until(lambda: not world.pinned("bad"), 20, "a pin that came too late is released")


def test_couriers_pause_while_the_store_or_the_log_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def away(*_: Any) -> None:
        nonlocal rounds
        rounds += 1
        raise ConnectionError("connection refused")

    repair = garbage_entry(world.folder("bad"))
    world.write(world.group("bad", 4, "first"))
    with monkeypatch.context() as broken:
        broken.setattr(type(world.queues), "get", away)
        world.resume("bad")
        wait_until(lambda: rounds, 20, "it is tried")
        time.sleep(0.5)
        assert rounds < 5, "there are pauses"
    repair()
    rounds = 0
    with monkeypatch.context() as broken:
        broken.setattr(FactWriter, "write_durable", away)
        world.resume("bad")
        wait_until(lambda: rounds, 20, "it is tried")
        time.sleep(0.5)
        assert rounds < 5, "there are pauses"
        assert world.waiting("bad") == 1, "until the fact is told"
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert ("imp4", 0) in world.durable


def test_a_staged_file_that_is_lost_stops_its_table_only_until_it_is_given_up(world: World) -> None:
    group = world.group("bad", 4, "first")
    assert group.file is not None
    (world.folder("bad") / group.file.path).unlink()
    assert world.write(group, world.group("good", 5, "first")) == ["good"]
    assert "is not there" in (world.state("bad").reason or "")
    key = own_queue("delta", "acme", "bad")
    world.queues.waive(key, 100)
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    wait_until(lambda: world.state("bad").parked_since is None, 20, "nor is it said to fail")
    assert ("imp4", 0) not in world.durable
    wait_until(lambda: world.write(world.group("bad", 6, "second")) == ["bad"], 20, "the table goes on")


def test_rows_that_the_folder_of_their_table_did_not_take_come_from_aside(world: World) -> None:
    repair = no_folder(world.folder("bad"))
    group = world.aside("bad", 4, "first")
    world.start()
    assert world.write(group, world.group("good", 5, "first")) == ["good"]
    reasons = {world.state("bad").reason}
    world.resume("bad")
    wait_until(lambda: world.state("bad").tries > 2, 20, "it is tried again")
    assert reasons == {world.state("bad").reason}, "every try says the same"
    for path in world.home.staged("acme", "bad").rglob("*.parquet"):
        path.unlink()
    repair()
    world.resume("bad")
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "first", "1": "b"}


def test_an_error_store_that_cannot_be_written_waits_alone(world: World) -> None:
    world.write(world.rejected("bad", 1), world.rejected("good", 2), sink=world.errors)
    repair = no_access(world.home.table_errors("acme", "bad"))
    assert world.write(world.rejected("bad", 3), world.rejected("good", 4), sink=world.errors) == ["good"]
    assert world.state("bad", "errors").parked_since
    assert world.write(world.group("bad", 5, "c")) == ["bad"], "the table itself is well"
    repair()
    world.resume("bad", "errors")
    wait_until(lambda: not world.waiting("bad", "errors"), 20, "nothing waits")
    stored = pl.read_delta(str(world.home.table_errors("acme", "bad")))
    assert sorted(stored["_import"].to_list()) == ["imp1", "imp3"]


class Slow:
    """A sink whose table `bad` answers when it is let go."""

    name = "delta"

    def __init__(self, sink: Sink) -> None:
        self._sink, self.may_go, self.tries = sink, threading.Event(), 0

    def write(self, groups: Sequence[StagedGroup]) -> Sequence[StagedGroup]:
        if groups[0].table == "bad":
            self.tries += 1
            assert self.may_go.wait(60)
        return self._sink.write(groups)


def test_a_table_that_hangs_holds_a_batch_for_a_moment_and_later_batches_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(table_couriers, "HANGING_SECONDS", 1.0)
    slow = Slow(world.delta)
    assert world.write(world.group("bad", 4, "first"), world.group("good", 5, "x"), sink=slow) == ["good"]
    began = time.monotonic()
    assert world.write(world.group("bad", 6, "second"), world.group("good", 7, "x"), sink=slow) == ["good"]
    assert time.monotonic() - began < 0.2 + 1, "nobody waits for it again"
    wait_until(lambda: "No end" in (world.state("bad").reason or ""), 20, "it is reported")
    assert slow.tries == 1, "it is not written twice at a time"
    slow.may_go.set()
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")
    assert world.texts("bad") == {"0": "second", "1": "b"}
    wait_until(lambda: world.state("bad").parked_since is None, 20, "it is well again")


def test_a_healthy_table_is_written_when_tables_that_hang_have_all_threads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(tables, "TABLES_AT_ONCE", 1)
    slow = Slow(world.delta)
    writer = TableWriter(slow, world.couriers)
    for version, table in ((4, "bad"), (5, "good")):
        assert list(writer.write([world.group(table, version, "x")])) == []
    wait_until(lambda: ("imp5", 0) in world.durable, 20, "its courier wrote it")
    assert world.waiting("bad") == 1
    slow.may_go.set()
    wait_until(lambda: not world.waiting("bad"), 20, "nothing waits")


def test_copies_of_rejected_rows_in_a_bucket_that_does_not_answer_hold_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name in ("ACCESS", "SECRET"):
            monkeypatch.setenv(f"MILLRACE_SECRET_{name}", "key")
        keys = {"access_key": "env:MILLRACE_SECRET_ACCESS", "secret_key": "env:MILLRACE_SECRET_SECRET"}
        lake = LakeSettings(errors_location="s3://b/e", endpoint=place, **keys)
        places, keyring = world.exchange.places, world.exchange.keyring(KEYS_HERE)
        context = SinkContext(places, lake=lake)
        errors = ErrorStore(context, ERRORS_SCHEMA, Upkeep(), keyring)
        world.couriers._courier.sinks["errors"] = errors  # type: ignore[index]
        began = time.monotonic()
        for number in (1, 2, 3):
            assert world.write(world.rejected("bad", number), world.rejected("good", 10 + number), sink=errors) == []
        assert time.monotonic() - began < 10, "a bucket may take minutes"
        assert world.write(world.group("bad", 5, "x"), world.group("good", 6, "x")) == ["bad", "good"]
        assert (world.waiting("bad", "errors"), world.waiting("good", "errors")) == (3, 3)
    wait_until(lambda: world.state("bad", "errors").parked_since, 30, "it is parked")
    world.queues.waive(own_queue("errors", "acme", "bad"), 100)
    world.resume("bad", "errors")
    wait_until(lambda: not world.waiting("bad", "errors"), 60, "it is given up")


def test_the_platforms_own_trouble_parks_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    batch = [world.group("bad", 4, "first")]
    monkeypatch.setattr(Store, "put_if_absent", full)
    with pytest.raises(OSError, match="No space left"):
        world.write(*batch)
    assert world.waiting("bad") == 0
    monkeypatch.setattr(type(world.exchange.places), "is_on_our_disk", lambda *_: False)
    assert world.write(*batch) == []
    assert world.waiting("bad") == 1, "a disk of its own is its own trouble"


def test_what_cannot_be_parked_fails_the_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    garbage_entry(world.folder("bad"))

    def away(*_: Any) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as broken:
        broken.setattr(world.queues, "park", away)
        with pytest.raises(OSError, match="the store is away"):
            world.write(world.group("bad", 4, "first"))
    world.write(world.group("bad", 4, "first"))
    assert world.waiting("bad") == 1


def test_a_healthy_table_asks_nothing_of_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lost_files(world.folder("bad"))
    world.start()
    world.write(world.group("bad", 4, "first"))
    with monkeypatch.context() as watched:
        for name in ("park", "get", "waiting", "of_tables"):
            watched.setattr(type(world.queues), name, lambda *_: pytest.fail("it was asked"))
        assert world.write(world.group("good", 5, "first")) == ["good"]


def test_an_erased_tenant_is_forgotten(world: World) -> None:
    garbage_entry(world.folder("bad"))
    world.write(world.group("bad", 4, "first"))
    with world.queues._store.write() as connection:
        forget_queues(connection, "acme")
    world.exchange.tenant_files.remove("acme")
    wait_until(lambda: not world.couriers._watched, 60, "nobody looks after it")
    assert world.write(world.group("bad", 1, "of a tenant of the same name")) == ["bad"]


def optimized(world: World, table: str) -> None:
    """Another engine has put all rows into one file, which nobody has indexed."""
    deltalake.DeltaTable(str(world.folder(table))).optimize.compact()


def test_nobody_waits_while_another_engines_file_is_indexed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "LONG_ROWS", 1)
    monkeypatch.setattr(tables, "PATIENCE_SECONDS", 60.0)
    assert world.write(world.group("big", 1, "a", "b"), world.group("big", 2, "c")) == ["big"]
    optimized(world, "big")
    going_on, waited_in_vain = threading.Event(), list[bool]()
    make = index.make_sidecar

    def slowly(*given: Any) -> Any:
        if not going_on.wait(10):
            waited_in_vain.append(True)
        return make(*given)

    monkeypatch.setattr(index, "make_sidecar", slowly)
    assert world.write(world.group("big", 3, "d"), world.group("good", 3, "b")) == ["good"]
    assert waited_in_vain == []
    assert world.waiting("big") == 1
    going_on.set()
    wait_until(lambda: world.waiting("big") == 0, 30, "the courier")
    assert world.texts("big")["0"] == "d"
    assert world.write(world.group("big", 4, "e")) == ["big"]


def test_files_of_few_rows_are_indexed_in_passing(world: World) -> None:
    assert world.write(world.group("small", 1, "a", "b"), world.group("small", 2, "c")) == ["small"]
    optimized(world, "small")
    assert world.write(world.group("small", 3, "d")) == ["small"]
    assert world.texts("small") == {"0": "d", "1": "b"}
