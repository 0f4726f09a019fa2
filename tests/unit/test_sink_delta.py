"""The Delta sink takes groups of every kind, again and in any order, and needs one commit for a batch."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import RECORD, vacuum
from millrace.model.sinks import REMOTE_DELTA_KIND, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.settings import KEYS_HERE
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta import sink as delta
from millrace.sink.delta.sink import DeltaSink, ErrorStore
from millrace.sink.delta.upkeep import (
    COMMITS,
    REMOVED_FILES_KEPT,
    Due,
    Upkeep,
    settled_version,
    tidy,
    vacuum_idle,
)
from tests.support.revisions import ID, Revisions, column, rows_of, stage_under

TEXT = column("text", ["null", "string"])


class Lake:
    """A home with one table, and the sink that writes it."""

    def __init__(self, root: Path, key: tuple[str, ...] = ("id",)) -> None:
        self.home = Home(root)
        self.home.definitions.mkdir()
        self.revisions = Revisions(key=key)
        self.upkeep = Upkeep()
        self.exchange = open_exchange(root)
        self.sink = self.open_sink()
        self.store = Store(self.home.table("acme", "t"))

    def open_sink(self) -> DeltaSink:
        exchange = self.exchange
        return DeltaSink(exchange.places, exchange.definitions, self.upkeep, exchange.keyring(KEYS_HERE))

    def tidy(self, due: Due) -> None:
        settled = settled_version(self.exchange.safe_version)
        tidy(due, SinkContext(self.exchange.places), self.exchange.keyring(KEYS_HERE), settled)

    def define(self, *fields: Mapping[str, Any], **more: Any) -> Definition:
        definition = self.revisions.add(*fields, **more)
        self.home.definition(definition.fingerprint).write_bytes(definition.to_json())
        return definition

    def rows(
        self, definition: Definition, version: int, *rows: Mapping[str, Any], publish: str = "rolling"
    ) -> StagedGroup:
        staged = stage_under(self.store, definition, version, rows) if rows else None
        chunks = ((f"imp{version}", 0),)
        return StagedGroup("acme", "t", definition.fingerprint, staged, chunks, version=version, publish=publish)

    def control(self, definition: Definition, kind: str, version: int, import_id: str | None = None) -> StagedGroup:
        return StagedGroup(
            "acme", "t", definition.fingerprint, None, ((import_id or f"imp{version}", 0),), kind, version
        )

    def texts(self) -> dict[int, str | None]:
        table = LakeTable(self.store, self.revisions.open(self.home.root / "x").spec)
        return {row["id"]: row["text"] for row in rows_of(table)}

    @property
    def version(self) -> int:
        return load(self.store).version


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_batch_of_every_kind_is_one_commit(lake: Lake) -> None:
    first = lake.define(ID, column("name", "string"))
    lake.sink.write([lake.rows(first, 1, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})])
    lake.sink.write([lake.rows(first, 7, {"id": 8, "name": "held"}, publish="atomic")])
    second = lake.define(ID, column("text", "string", "name"))
    lake.sink.write(
        [
            lake.rows(second, 9, {"id": 3, "text": "new"}, {"id": 2, "_deleted": True}),
            lake.control(second, "truncate", 3),
            lake.control(first, "publish", 8, "imp7"),
            lake.control(second, "prepare", 5),
            lake.rows(first, 2, {"id": 4, "name": "below"}),
            lake.rows(first, 4, {"id": 5, "name": "late"}),
            lake.rows(second, 10),
        ]
    )
    assert lake.version == 1
    assert lake.texts() == {3: "new", 5: "late", 8: "held"}


def test_every_order_ends_the_same_and_again_changes_nothing(tmp_path: Path) -> None:
    for number, order in enumerate(permutations(range(5))):
        (tmp_path / str(number)).mkdir()
        lake = Lake(tmp_path / str(number))
        first = lake.define(ID, column("name", "string"))
        second = lake.define(ID, column("text", "string", "name", default="-"))
        groups = [
            lake.rows(first, 2, {"id": 1, "name": "a"}, {"id": 2, "name": "b"}),
            lake.control(second, "prepare", 3),
            lake.rows(first, 4, {"id": 3, "name": "c"}, {"id": 1, "_deleted": True}),
            lake.control(second, "truncate", 3),
            lake.rows(second, 5, {"id": 2, "text": "B"}),
        ]
        for place in order:
            lake.sink.write([groups[place]])
        assert lake.texts() == {2: "B", 3: "c"}, order
        version = lake.version
        lake.sink.write(groups)
        lake.open_sink().write(groups[::-1])
        assert lake.version == version, order


def test_an_atomic_import_is_seen_whole_or_not_at_all(lake: Lake) -> None:
    table = lake.define(ID, TEXT)
    lake.sink.write([lake.rows(table, 1, {"id": 1, "text": "old"})])
    held = [
        replace(lake.rows(table, version, *rows, publish="atomic"), chunks=(("imp2", version),))
        for version, rows in (
            (2, [{"id": 1, "text": "new"}]),
            (3, [{"id": 2, "text": "b"}, {"id": 9, "_deleted": True}]),
        )
    ]
    for _ in range(2):
        lake.sink.write(held)
        assert lake.texts() == {1: "old"}
    before = lake.version
    lake.open_sink().write([lake.control(table, "publish", 5, "imp2")])
    assert lake.version == before + 1
    assert lake.texts() == {1: "new", 2: "b"}
    for again in (
        held,
        [lake.control(table, "publish", 5, "imp2")],
        [*held, lake.control(table, "publish", 5, "imp2")],
    ):
        lake.sink.write(again)
        assert lake.version == before + 1
    lake.sink.write([lake.rows(table, 1, {"id": 9, "text": "beaten by the published delete"})])
    assert lake.texts() == {1: "new", 2: "b"}
    assert lake.store.list("_millrace/held") == []


@pytest.mark.parametrize("step", ["keep_unpublished", "forget_published"])
def test_a_sink_that_dies_while_publishing_starts_again(lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    table = lake.define(ID, TEXT)
    groups = [lake.rows(table, 1, {"id": 1}, publish="atomic"), lake.control(table, "publish", 2, "imp1")]

    def dies(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(delta, step, dies)
        with pytest.raises(SinkFailed, match="killed"):
            lake.sink.write(groups)
    lake.open_sink().write(groups)
    assert (lake.version, lake.texts()) == (0, {1: None})
    assert lake.store.list("_millrace/held") == []


def test_publishing_one_import_shows_nothing_of_another(lake: Lake) -> None:
    table = lake.define(ID, TEXT)
    lake.sink.write([lake.rows(table, version, {"id": version}, publish="atomic") for version in (1, 2)])
    lake.sink.write([lake.control(table, "publish", 3, "imp2")])
    assert lake.texts() == {2: None}
    lake.sink.write([lake.control(table, "publish", 4, "imp1")])
    assert lake.texts() == {1: None, 2: None}


def test_an_atomic_import_without_key_is_there_once_however_it_is_cut(tmp_path: Path) -> None:
    lake = Lake(tmp_path, key=())
    table = lake.define(ID, TEXT)

    def group(prefix: str, *numbers: int) -> StagedGroup:
        rows = [stage_under(lake.store, table, 10 + number, [{"id": number}]) for number in numbers]
        chunks = [StagedChunk(f"imp1/{number}", place, 1, 10 + number) for place, number in enumerate(numbers)]
        parts = pa.concat_tables([pq.read_table(lake.store.path(file.path)) for file in rows])
        staged = write_data_file(lake.store, parts, (), prefix, chunks)
        told = tuple(("imp1", number) for number in numbers)
        return StagedGroup("acme", "t", table.fingerprint, staged, told, publish="atomic")

    lake.sink.write([group("a", 1, 2), group("b", 3)])
    lake.sink.write([group("c", 2, 3), lake.control(table, "publish", 20, "imp1"), group("d", 1)])
    lake.sink.write([group("e", 1, 2, 3)])
    assert sorted(scan(lake.store, load(lake.store))["id"].to_pylist()) == [1, 2, 3]


def test_held_files_take_the_shape_the_table_has_when_they_are_published(lake: Lake) -> None:
    first = lake.define(ID, column("name", "string"))
    lake.sink.write([lake.rows(first, 1, {"id": 1, "name": "a"}, publish="atomic")])
    second = lake.define(ID, column("text", "string", "name"))
    lake.sink.write([lake.control(second, "prepare", 2)])
    lake.sink.write([lake.control(first, "publish", 3, "imp1")])
    assert lake.texts() == {1: "a"}


def test_a_held_file_is_not_vacuumed_until_its_import_is_over(lake: Lake) -> None:
    table = lake.define(ID, TEXT)
    group = lake.rows(table, 5, {"id": 1, "text": "a"}, {"id": 2, "_deleted": True}, publish="atomic")
    lake.sink.write([group])
    then = time.time() - 10_000
    for folder in ("", "_millrace/keys", "_millrace/tombstones"):
        for entry in lake.store.list(folder):
            os.utime(lake.store.path(entry.name), (then, then))
    now = timedelta(0)
    handle = LakeTable(lake.store, lake.revisions.open(lake.home.root / "x").spec)
    handle.maintain(safe_version=4)
    assert vacuum(lake.store, now, now) == []
    handle.maintain(safe_version=5)
    assert group.file is not None
    assert {group.file.path, group.file.tombstones} <= set(vacuum(lake.store, now, now))


def test_a_new_generation_forgets_rows_held_for_the_old_one(lake: Lake) -> None:
    first = lake.define(ID, TEXT)
    lake.sink.write([lake.rows(first, 1, {"id": 1, "text": "a"}, publish="atomic"), lake.rows(first, 2, {"id": 2})])
    second = lake.define(ID, TEXT, floor=5)
    lake.sink.write([lake.rows(second, 6, {"id": 6, "text": "new"}), lake.control(first, "publish", 3, "imp1")])
    lake.sink.write([lake.rows(first, 3, {"id": 3}), lake.control(first, "truncate", 4)])
    assert lake.texts() == {6: "new"}


def test_commits_of_deletes_alone_count_for_upkeep(lake: Lake) -> None:
    table = lake.define(ID, TEXT)
    for version in range(1, COMMITS + 1):
        lake.sink.write([lake.rows(table, version, {"id": version, "_deleted": True})])
    (due,) = lake.upkeep.take_due()
    lake.tidy(due)
    assert due.root == lake.store.root
    assert lake.texts() == {}


def test_upkeep_forgets_nothing_without_the_accountants_word(lake: Lake) -> None:
    table = lake.define(ID, TEXT)
    old = 1_000_000
    lake.sink.write([lake.rows(table, old, {"id": 1, "_deleted": True})])
    spec = lake.revisions.open(lake.home.root / "x").spec
    lake.tidy(Due(lake.store.root, spec))
    lake.sink.write([lake.rows(table, old - 2, {"id": 2, "text": "under way"})])
    lake.exchange.safe_version.write(old + 5)
    lake.tidy(Due(lake.store.root, spec))
    lake.sink.write([lake.rows(table, old - 1, {"id": 1, "text": "late"}, {"id": 3, "text": "late"})])
    assert lake.texts() == {2: "under way"}
    lake.sink.write([lake.rows(table, old + 1, {"id": 1, "text": "back"})])
    assert lake.texts() == {1: "back", 2: "under way"}


def test_rows_for_a_sink_elsewhere_that_is_called_the_same_are_not_its_own(lake: Lake) -> None:
    elsewhere = SinkTarget("delta", REMOTE_DELTA_KIND, True, {"location": "platform"})
    here, there = lake.define(ID, TEXT), lake.define(ID, TEXT, targets=(elsewhere,))
    ours, theirs = lake.rows(here, 1, {"id": 1, "text": "a"}), lake.rows(there, 2, {"id": 2, "text": "b"})
    assert lake.sink.write([ours, theirs]) == [ours]
    assert lake.sink.write([theirs]) == []
    assert lake.texts() == {1: "a"}


def test_records_from_before_there_were_kinds_still_parse() -> None:
    staged = {"path": "p", "size": 1, "rows": 1, "sidecar": None, "chunks": []}
    record = {"tenant": "a", "table": "t", "definition": "d", "file": staged, "chunks": [["imp", 0]]}
    group = StagedGroup.from_dict(orjson.loads(orjson.dumps(record)))
    assert (group.kind, group.version, group.publish) == ("rows", 0, "rolling")
    assert group.file is not None
    assert (group.file.tombstones, group.file.deleted_rows) == (None, 0)


def test_the_error_store_takes_rows_at_once(tmp_path: Path) -> None:
    schema, exchange = pa.schema([("why", pa.string())]), open_exchange(tmp_path)
    errors = ErrorStore(SinkContext(exchange.places), schema, Upkeep(), exchange.keyring(KEYS_HERE))
    store = Store(tmp_path / "errors" / "acme" / "t")
    rows = pa.table({"why": ["bad"], "_version": [5], "_import": ["imp"], "_row": [1]})
    staged = write_data_file(store, rows, (), "part", [StagedChunk("imp/0", 0, 1, 5)])
    group = StagedGroup("acme", "t", "any", staged, (("imp", 0),), publish="atomic")
    errors.write([group])
    errors.write([group])
    assert scan(store, load(store))["why"].to_pylist() == ["bad"]


def test_a_table_that_nobody_writes_any_more_is_vacuumed(lake: Lake) -> None:
    table, spec = lake.define(ID, TEXT), lake.revisions.open(lake.home.root / "x").spec
    lake.sink.write([lake.rows(table, 1, {"id": 1, "text": "a"})])
    lake.sink.write([lake.rows(table, 2, {"id": 1, "text": "b"})])
    lake.tidy(Due(lake.store.root, spec))
    places, keyring = lake.exchange.places, lake.exchange.keyring(KEYS_HERE)
    record, long_ago = lake.store.root / RECORD, time.time() - REMOVED_FILES_KEPT.total_seconds() - 60
    (removed,) = orjson.loads(record.read_bytes())

    def age(days: float) -> None:
        record.write_bytes(orjson.dumps({removed: time.time() - 86_400 * days}))
        for path in (record, lake.store.root / removed):
            os.utime(path, (long_ago, long_ago))

    age(days=6.9)
    vacuum_idle(places, keyring)
    assert (lake.store.root / removed).exists(), "a reader of the last 7 days may need it"
    age(days=7.1)
    next_year = time.time() + 365 * 86_400
    os.utime(record, (next_year, next_year))
    vacuum_idle(places, keyring)
    assert not (lake.store.root / removed).exists(), "the clock was wrong for a while"
    assert lake.texts() == {1: "b"}
