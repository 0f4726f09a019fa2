"""What a batch leaves to be sent goes out once and is forgotten, however much one tenant made wait."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from millrace.control.entities import load
from millrace.control.outbox import EffectOutbox, Kept
from millrace.control.state import Send
from millrace.control.working_set import WorkingSet
from millrace.exchange.home import Home
from millrace.exchange.stops import StopList
from millrace.model.chunk import TRUNCATE
from millrace.model.imports import PROCESSING, Import
from millrace.model.ops.rows import Append
from millrace.model.ops.spans import EndSpan
from millrace.store import tables as t
from millrace.store.engine import ControlStore, upsert
from millrace.wire.client import Appended
from millrace.wire.envelope import unpack

# SQLite allows no expression to be deeper than 1,000.
MANY = 1_001


class CountingLog:
    def __init__(self) -> None:
        self.appended = 0

    def append(self, topic: str, key: bytes, value: bytes, partition: int, headers: Any = ()) -> "Future[Appended]":
        self.appended += 1
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, self.appended))
        return done


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    made = ControlStore(f"sqlite:///{tmp_path / 'control.db'}")
    yield made
    made.close()


def test_any_number_of_chunks_is_sent_once(store: ControlStore, tmp_path: Path) -> None:
    op, kept, log = EndSpan("acme", "night", id="op_1"), Kept(), CountingLog()
    for number in range(MANY):
        imp = Import(f"imp_{number}", "acme", "notes", "d", PROCESSING, number, 1, ("delta",), 1)
        kept.keep(Send.change(imp, 0, TRUNCATE), op, number, 1)
    with store.write() as connection:
        kept.write(connection)
    outbox = EffectOutbox(store, log, StopList(Home(tmp_path)), 4)  # type: ignore[arg-type]
    outbox.relay()
    outbox.relay()
    assert log.appended == MANY


def test_no_statement_grows_with_what_waits(store: ControlStore) -> None:
    names = [f"name_{number}" for number in range(MANY)]
    append = Append(
        "acme", "notes", rows=1, plain_bytes=1, checksum=1, payload="", senders=dict.fromkeys(names, (2, 2)), id="imp_1"
    )
    stream = {"tenant": "acme", "table_name": "notes", "touched_us": 1}
    with store.write() as connection:
        upsert(connection, t.streams, [{**stream, "stream": name, "seq": 1} for name in names])
        upload = {"length": None, "confirmed": None, "seen_us": 1}
        upsert(connection, t.uploads, [{**upload, "import_id": name} for name in names])
        connection.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, MANY - 1)  # type: ignore[union-attr]
        assert load(WorkingSet(connection), append).senders == dict.fromkeys(names, 1)
        Kept(over=names).write(connection)
        assert not list(connection.execute(select(t.uploads)))


class LateLog(CountingLog):
    """Another process commits an event, whose number was handed out before, while this one sends."""

    def __init__(self, store: ControlStore) -> None:
        super().__init__()
        self._store = store
        self.events: list[str] = []

    def append(self, topic: str, key: bytes, value: bytes, partition: int, headers: Any = ()) -> "Future[Appended]":
        if not self.events:
            with self._store.write() as connection:
                connection.execute(insert(t.events), [event(5, "late")])
        self.events.append(unpack(value)["id"])
        return super().append(topic, key, value, partition)


def event(number: int, name: str) -> dict[str, object]:
    row = {"number": number, "id": name, "tenant": "acme", "event": {"id": name}}
    return {**row, "published": False, "kept_from": 0}


def test_only_events_that_were_sent_are_marked_as_published(store: ControlStore, tmp_path: Path) -> None:
    log = LateLog(store)
    with store.write() as connection:
        connection.execute(insert(t.events), [event(7, "first"), event(8, "second")])
    outbox = EffectOutbox(store, log, StopList(Home(tmp_path)), 4)  # type: ignore[arg-type]
    outbox.relay()
    assert log.events == ["first", "second"]
    outbox.relay()
    assert log.events == ["first", "second", "late"]
    outbox.relay()
    assert len(log.events) == 3
