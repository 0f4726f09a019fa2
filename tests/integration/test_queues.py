"""Queues of deliveries in the control store, SQLite and PostgreSQL: parked once, taken away once, whoever writes beside."""

import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import event

from millrace.exchange.queues import Members, ParkedRow, Queues, parked_targets
from millrace.model.queues import Backfill, Backlog, Member, QueueKey, QueueState, Waiver
from millrace.model.sinks import SinkTarget
from millrace.store.engine import ControlStore
from millrace.store.erasing import erase_rows
from tests.support.waiting import wait_until

KEY = QueueKey("postgres", "acme", "notes", "warehouse")
OTHER = QueueKey("files", "acme", "notes", "export")
MEMBER = Member(SinkTarget("warehouse", "postgres", True, {"host": "h"}), "abc", (1, 2), (1, 2), None, Backfill())


def row(version: int, key: QueueKey = KEY, item: str = "{}") -> ParkedRow:
    return ParkedRow(key, version, f"d{version}", version, 10, item)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'control.db'}"
    dsn: str = request.getfixturevalue("postgres_dsn")
    name = f"queues_{uuid4().hex}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return dsn.rpartition("/")[0].replace("postgresql://", "postgresql+psycopg://") + f"/{name}"


@pytest.fixture
def store(url: str) -> ControlStore:
    return ControlStore(url)


@pytest.fixture
def queues(store: ControlStore) -> Queues:
    return Queues(store)


def test_a_batch_parked_again_is_there_once_and_in_the_order_of_its_versions(queues: Queues) -> None:
    batch = [row(30), row(10), row(20, OTHER)]
    for _ in range(2):
        queues.park(batch)
    names, rows = queues.waiting(KEY)
    assert names == [(10, "d10"), (30, "d30")]
    assert sorted(one.place for one in rows) == [10, 30]
    assert queues.waiting(KEY, known=names) == (names, []), "what is known is not read again"
    assert queues.backlogs("acme", "notes") == {KEY: Backlog(2, 20, 10), OTHER: Backlog(1, 10, 20)}
    assert {record.key for record in queues.with_parked()} == {KEY, OTHER}


def test_a_delivery_parked_again_takes_the_place_of_the_first(queues: Queues) -> None:
    queues.park([row(10)])
    queues.park([row(10, item='{"is_backfill": true}')])
    assert [one.item for one in queues.waiting(KEY)[1]] == ['{"is_backfill": true}']


def test_what_is_done_goes_together_with_the_new_state(queues: Queues) -> None:
    queues.park([row(10), row(20)])
    state = QueueState(1.5, "away", "sink", 3, 2.5, 10, 4, 100, 360.0)
    queues.finish(KEY, [(10, "d10")], state)
    record = queues.get(KEY)
    assert record is not None
    assert record.state == state
    assert queues.waiting(KEY)[0] == [(20, "d20")]
    with queues._store.read() as connection:
        assert parked_targets(connection, "acme", "notes").keys() == {"warehouse"}
        assert parked_targets(connection, "acme", "other") == {}


def test_members_change_in_turn_and_what_was_forgotten_stays_so(queues: Queues) -> None:
    def want(members: Members) -> Members:
        return {name: member.wanting("imp_1") for name, member in members.items()}

    place = ("postgres", "acme", "notes")
    queues.change_members(*place, lambda _: {"warehouse": MEMBER})
    threads = [threading.Thread(target=queues.change_members, args=(*place, want)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    record = queues.get(KEY)
    assert record is not None
    assert record.member == replace(MEMBER, backfill=Backfill(needs=("imp_1",) * 8))
    queues.change_members(*place, lambda _: {"gone": replace(MEMBER, removed=(1, 3))})
    assert [one.key.target for one in queues.of_tables("postgres", [("acme", "notes")])] == ["warehouse"]
    assert queues.of_tables("files", [("acme", "notes")]) == []


def test_orders_of_an_operator_reach_the_couriers_once(queues: Queues) -> None:
    queues.waive(KEY, 99)
    record = queues.get(KEY)
    assert record is not None
    assert record.waiver.below == 99
    assert record.waiver.until > Waiver().until[:0]
    queues.ask_to_resume(KEY)
    queues.ask_to_resume(OTHER)
    assert queues.take_resumes([OTHER]) == set(), "a queue that is not there has nothing to resume"
    assert queues.take_resumes([KEY, OTHER]) == {KEY}, "nobody else took the order"
    assert queues.take_resumes([KEY, OTHER]) == set()


def test_a_queue_is_forgotten_only_as_it_was_seen_and_empty(queues: Queues) -> None:
    queues.park([row(10)])
    seen = queues.get(KEY)
    assert seen is not None
    assert not queues.forget(seen), "something waits"
    queues.finish(KEY, [(10, "d10")])
    assert not queues.forget(seen), "it changed since"
    seen = queues.get(KEY)
    assert seen is not None
    assert queues.forget(seen)
    assert queues.all() == []


def test_a_queue_that_is_forgotten_while_something_is_parked_is_there_with_it(
    url: str, queues: Queues, store: ControlStore
) -> None:
    queues.park([row(10)])
    queues.finish(KEY, [(10, "d10")])
    seen = queues.get(KEY)
    assert seen is not None
    beside, began = Queues(ControlStore(url)), threading.Event()
    forgetting = threading.Thread(target=beside.forget, args=(seen,))

    @event.listens_for(store._engine, "after_cursor_execute")
    def forget_beside(*_: object) -> None:
        if not began.is_set():
            began.set()
            forgetting.start()
            forgetting.join(1.0)

    queues.park([row(20)])
    forgetting.join(30)
    assert not forgetting.is_alive()
    assert [record.key for record in queues.with_parked()] == [KEY], "a courier finds it"


def test_an_erased_tenant_leaves_no_delivery(queues: Queues, store: ControlStore) -> None:
    queues.park([row(10), row(10, KEY._replace(tenant="other"))])
    with store.write() as connection:
        erase_rows(connection, "acme")
    assert [record.key.tenant for record in queues.all()] == ["other"]
    assert [record.key.tenant for record in queues.with_parked()] == ["other"]


def test_a_transaction_that_reads_first_may_still_write_beside_another_process(url: str, queues: Queues) -> None:
    """SQLite refuses that, without waiting, unless the transaction began as a writer. A second Store stands for the other
    process: it shares no lock with the first."""
    beside, has_written = Queues(ControlStore(url)), threading.Event()

    def write_beside() -> None:
        beside.park([row(10, OTHER)])
        has_written.set()

    other = threading.Thread(target=write_beside)

    def change(_: Members) -> Members:
        other.start()
        # True only if nothing keeps the other from writing in between.
        has_written.wait(0.5)
        return {"warehouse": MEMBER}

    queues.change_members("postgres", "acme", "notes", change)
    other.join(30)
    assert has_written.is_set()
    assert {record.key for record in queues.all()} == {KEY, OTHER}


def _park_batches(url: str) -> None:
    queues = Queues(ControlStore(url))
    for batch in range(10_000):
        queues.park([row(batch * 10 + n + 1, KEY._replace(target=f"t{n}")) for n in range(10)])


def test_a_process_killed_while_it_parks_leaves_whole_batches(url: str, queues: Queues) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_park_batches, args=(url,))
    process.start()
    assert process.pid is not None
    wait_until(lambda: queues.backlog(KEY._replace(target="t0")).waiting > 20, 60, "some batches are parked")
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    counts = {backlog.waiting for backlog in queues.backlogs("acme", "notes").values()}
    assert len(counts) == 1, "every queue has the same batches"
    queues.park([row(1)])


def test_processes_that_start_together_make_the_tables_once(url: str) -> None:
    barrier, failures = threading.Barrier(8), []

    def start() -> None:
        barrier.wait(30)
        try:
            ControlStore(url)
        except Exception as error:
            failures.append(error)

    starting = [threading.Thread(target=start) for _ in range(8)]
    for one in starting:
        one.start()
    for one in starting:
        one.join(60)
    assert failures == []
