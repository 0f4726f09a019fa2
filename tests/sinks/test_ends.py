"""From the accountant's mark to the manifest: the end of an import reaches the sinks that are told of it, once."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import insert

from millrace.account.ledger import mark_end
from millrace.api.jobs.retention import ask_to_let_go
from millrace.declare.table import parse_table
from millrace.deliver.delivery import Order, deliver
from millrace.deliver.ends import Ends
from millrace.deliver.queue import Queue
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.queues import Queues
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store as TableStore
from millrace.model.imports import Import
from millrace.model.queues import QueueKey
from millrace.model.sinks import SinkTarget
from millrace.model.table import Definition, define
from millrace.sink.contract import StagedGroup
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from tests.support.queues import put
from tests.support.sink_context import sink_context

IMPORT = "imp_01"
DAY_US = 86_400_000_000


class World:
    """A home with one table whose sink writes files, and what is on its way there."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.out = root / "exports"
        self.definition = self._define()
        self.exchange = open_exchange(root)
        definitions, places = self.exchange.definitions, self.exchange.places
        definitions.publish(self.definition)
        self.store = ControlStore(f"sqlite:///{root / 'control.db'}")
        self.queues = Queues(self.store)
        self.ends = Ends(self.exchange.ends, places, self.queues, definitions.read)
        self.queue = Queue(places, self.queues, QueueKey("files", "acme", "events", "export"))

    def _define(self) -> Definition:
        schema = {"type": "record", "name": "events", "fields": [{"name": "id", "type": "long"}]}
        target = {"kind": "files", "name": "export", "path": self.out.as_uri()}
        return define("acme", parse_table({"schema": schema, "sinks": [target]}), 1)

    def end(self, accepted: dict[int, int]) -> None:
        empty = {"rejected": 0, "ignored": 0, "failure": None, "checksum": 0}
        chunks = [{"import_id": IMPORT, "number": n, "rows": 9, "accepted": rows} for n, rows in accepted.items()]
        imp = Import(IMPORT, "acme", "events", self.definition.fingerprint, "processing", 100, 9, ("export",), 0)
        with self.store.write() as connection:
            connection.execute(insert(t.chunks), [{**chunk, **empty} for chunk in chunks])
            mark_end(connection, imp, self.definition, self.exchange.ends)

    def park(self, number: int) -> None:
        root = self.home.table("acme", "events")
        rows = pa.table({"id": [number], "_version": [100 + number], "_import": [IMPORT], "_row": [number + 1]})
        chunk = StagedChunk(f"{IMPORT}/{number}", 0, 1, 100 + number)
        staged = write_data_file(TableStore(root), rows, (), f"{IMPORT}-{number}", (chunk,))
        group = StagedGroup("acme", "events", self.definition.fingerprint, staged, ((IMPORT, number),))
        put(self.queue, group, root)

    def deliver(self) -> None:
        items = self.queue.items()
        target: SinkTarget = self.definition.table.targets[0]
        outcome = deliver(Order(self.queue.pins, target, tuple(items)), self.exchange, sink_context())
        assert outcome.fault is None, outcome.message
        self.queue.done(items)

    def rows(self) -> list[int]:
        found = (self.out / "acme" / "events").rglob("*.parquet")
        return sorted(row for path in found for row in pq.read_table(path)["id"].to_pylist())

    @property
    def manifest(self) -> dict[str, Any] | None:
        path = self.out / "acme" / "events" / "_manifests" / f"{IMPORT}.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("MILLRACE_FILES_ROOT", str(tmp_path / "exports"))
    return World(tmp_path)


def test_an_end_brings_the_manifest(world: World) -> None:
    world.park(0)
    world.park(2)
    world.deliver()
    assert world.manifest is None
    world.end({0: 1, 1: 0, 2: 1})
    assert [key for key, _ in world.ends.park()] == [world.queue.key]
    world.deliver()
    assert world.manifest is not None
    assert world.manifest["rows"] == 2
    assert list(world.ends.park()) == [], "told once"


def test_an_end_that_overtakes_rows_waits_for_them(world: World) -> None:
    """As with a sink that is not required: the import ends without it."""
    world.park(0)
    world.end({0: 1, 3: 1})
    list(world.ends.park())
    world.deliver()
    assert world.manifest is None
    world.park(3)
    world.deliver()
    assert world.manifest is not None
    assert sorted(chunk for file in world.manifest["files"] for chunk in file["chunks"]) == ["imp_01/0", "imp_01/3"]


def test_rows_older_than_was_agreed_leave_the_sink_and_do_not_come_back(world: World) -> None:
    for number in range(3):
        world.park(number)
    world.deliver()
    assert ask_to_let_go(world.exchange.ends, world.exchange.aged, world.definition, 101 + DAY_US) is True
    assert ask_to_let_go(world.exchange.ends, world.exchange.aged, world.definition, 102 + DAY_US) is False, (
        "once a day"
    )
    ((key, _),) = world.ends.park()
    assert key == world.queue.key
    world.deliver()
    assert world.rows() == []
    world.park(7)
    world.deliver()
    assert world.rows() == [], "older than what was let go"


def test_rows_leave_by_their_age_whatever_was_given_up_before(world: World) -> None:
    world.park(0)
    world.deliver()
    world.queues.waive(world.queue.key, 10 * DAY_US)
    ask_to_let_go(world.exchange.ends, world.exchange.aged, world.definition, 2 * DAY_US)
    assert len(list(world.ends.park())) == 1


def test_an_import_without_rows_has_a_manifest_too(world: World) -> None:
    world.end({0: 0})
    list(world.ends.park())
    world.deliver()
    assert world.manifest == {"import": IMPORT, "rows": 0, "bytes": 0, "files": []}


def test_a_table_without_such_a_sink_leaves_no_mark(world: World, tmp_path: Path) -> None:
    world.definition = define("acme", parse_table({"schema": world.definition.table.schema}), 2)
    world.end({0: 1})
    assert not world.home.ends.exists()
