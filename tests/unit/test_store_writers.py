"""Two processes on one control store: neither fails because the other writes, and a replaced reader does no work."""

import multiprocessing
import sqlite3
from concurrent.futures import Future
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import select, update

from millrace.account import accountant as accountant_module
from millrace.account.accountant import Accountant
from millrace.control import controller as controller_module
from millrace.control.controller import Controller
from millrace.control.genuine import GenuineOps
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.partitions import OpPartitions
from millrace.model.errors import Clash
from millrace.model.facts import Durable, to_dict
from millrace.model.ops import Applied
from millrace.model.ops.tenants import DefineTenant
from millrace.store import tables as t
from millrace.store.engine import ControlStore, insert_new
from millrace.store.records import positions
from millrace.wire.client import Appended, Cluster, Record
from millrace.wire.envelope import pack
from millrace.wire.topics import PROGRESS, TABLE_OPS
from tests.support.golden_log import trust_behind

WRITES = 200
SECONDS = 60.0


def url_of(root: Path) -> str:
    return f"sqlite:///{root / 'control.db'}"


def test_a_writer_that_reads_first_keeps_its_turn(tmp_path: Path) -> None:
    one, other = (
        ControlStore(url_of(tmp_path)),
        sqlite3.connect(tmp_path / "control.db", timeout=0.05, isolation_level=None),
    )
    with one.write() as connection:
        assert positions(connection, "log") == {}
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO closings VALUES ('imp_other')")
        insert_new(connection, t.closings, [{"import_id": "imp_one"}])
    other.execute("INSERT INTO closings VALUES ('imp_other')")
    with one.read() as connection:
        assert len(list(connection.execute(select(t.closings)))) == 2
    other.close()
    one.close()


def test_a_new_store_that_two_processes_open_at_once_is_opened_by_both(tmp_path: Path) -> None:
    """SQLite calls the file locked, without waiting, for the one that comes second. It happens once in a hundred starts."""
    busy = iter([sqlite3.OperationalError("database is locked")] * 2)

    class Late(sqlite3.Connection):
        def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
            error = next(busy, None) if "journal_mode" in statement else None
            if error is not None:
                raise error
            return super().execute(statement, *more)

    connect = sqlite3.connect
    with patch.object(sqlite3.dbapi2, "connect", lambda *given, **more: connect(*given, factory=Late, **more)):
        store = ControlStore(url_of(tmp_path))
    assert list(busy) == []
    with store.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    store.close()


def test_readers_wait_for_no_writer(tmp_path: Path) -> None:
    one, other = ControlStore(url_of(tmp_path)), ControlStore(url_of(tmp_path))
    with one.write() as writing, other.read() as reading:
        insert_new(writing, t.closings, [{"import_id": "imp_one"}])
        assert list(reading.execute(select(t.closings))) == []
    one.close()
    other.close()


def count_up(root: str, together: Barrier) -> None:
    store, where = ControlStore(url_of(Path(root))), t.positions.c.log == "shared"
    together.wait(SECONDS)
    for _ in range(WRITES):
        with store.write() as connection:
            before = connection.execute(select(t.positions.c.next_offset).where(where)).scalar_one()
            connection.execute(update(t.positions).where(where).values(next_offset=before + 1))
    store.close()


def test_two_processes_that_read_and_then_write_lose_nothing(tmp_path: Path) -> None:
    store = ControlStore(url_of(tmp_path))
    with store.write() as connection:
        insert_new(connection, t.positions, [{"log": "shared", "partition": 0, "next_offset": 0}])
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(2)
    writers = [context.Process(target=count_up, args=(str(tmp_path), together)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(SECONDS)
    assert [writer.exitcode for writer in writers] == [0, 0]
    with store.read() as connection:
        assert positions(connection, "shared") == {0: 2 * WRITES}
    store.close()


class Log:
    def append(self, topic: str, key: bytes, value: bytes, partition: int, headers: Any = ()) -> "Future[Appended]":
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class FourPartitions:
    def __init__(self, _: Any) -> None: ...

    def partitions(self, _: str) -> int:
        return 4


def record(topic: str, value: dict[str, Any]) -> Record:
    return Record(topic, 0, 0, 1_000, b"", pack(value))


def test_a_replaced_controller_evaluates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, exchange, applied = ControlStore(url_of(tmp_path)), open_exchange(tmp_path), list[Applied]()
    op = record(TABLE_OPS, DefineTenant("acme", agreement={}, id="op_1").to_dict())
    genuine = GenuineOps(trust_behind([op]))
    with patch.object(controller_module, "Topics", FourPartitions):
        shared: Any = (store, Cluster(""), Log(), exchange.definitions, exchange.stops, genuine, applied.extend)
        owner, replaced = Controller(*shared), Controller(*shared)
    owner._positions, replaced._positions = {0: 0}, {0: 0}
    with store.write() as connection:
        insert_new(connection, t.positions, [{"log": TABLE_OPS, "partition": 0, "next_offset": 0}])
    owner.apply([op])
    monkeypatch.setattr(controller_module, "step", lambda *_: pytest.fail("It evaluated an op."))
    with pytest.raises(Clash, match="Another process"):
        replaced.apply([op])
    assert len(applied) == 1
    store.close()


def test_a_replaced_accountant_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ControlStore(url_of(tmp_path))
    with patch.object(accountant_module, "Topics", FourPartitions):
        replaced = Accountant(store, Cluster(""), Log(), OpPartitions(store, 4), open_exchange(tmp_path))  # type: ignore[arg-type]
    replaced._positions = {0: 0}
    with store.write() as connection:
        insert_new(connection, t.positions, [{"log": PROGRESS, "partition": 0, "next_offset": 7}])
    monkeypatch.setattr(accountant_module, "fold", lambda *_: pytest.fail("It counted a fact."))
    with pytest.raises(Clash, match="Another process"):
        replaced._account([record(PROGRESS, to_dict(Durable("delta", (("imp_1", 0),))))])
    store.close()
