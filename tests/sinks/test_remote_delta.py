"""Delta tables elsewhere as the platform sees them: delivered, queried, kept tidy, refused where they would break."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millrace.arrow.types import stored_schema
from millrace.credentials.secrets import Secrets
from millrace.declare.table import parse_table
from millrace.deliver.delivery import Delivered, Order, deliver
from millrace.exchange.home import Home
from millrace.exchange.mailboxes import open_exchange
from millrace.exchange.places import Places
from millrace.lake import compact
from millrace.lake.log import load
from millrace.lake.remote import RemoteStore
from millrace.lake.schema import spec_of
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.model.errors import Invalid, TooLarge
from millrace.model.sinks import REMOTE_DELTA_KIND, Fault, SinkTarget
from millrace.model.table import Definition, define
from millrace.read.query import QueryLimits, ReadableTable, run_query
from millrace.settings import KEYS_HERE
from millrace.sink.connector import Rows, Work
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta import remote as delta_remote
from millrace.sink.delta.places import copies_of, table_store
from millrace.sink.delta.remote import DeltaRemoteSink
from millrace.sink.delta.settings import DeltaRemoteSettings
from millrace.sink.delta.upkeep import COMMITS, Upkeep, tidy
from tests.support.claim_server import claim_server
from tests.support.queues import put, queue_at
from tests.support.reading_back import read_back
from tests.support.remote_delta import bucket_target
from tests.support.sink_context import sink_context


@pytest.fixture
def target(request: pytest.FixtureRequest) -> SinkTarget:
    return bucket_target(request)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def notes(target: SinkTarget, key: tuple[str, ...] = ("id",)) -> Definition:
    fields = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
    sinks = [{"kind": target.kind, "name": target.name, **target.settings}]
    schema = {"type": "record", "name": "notes", "fields": fields}
    return define("acme", parse_table({"schema": schema, "primary_key": list(key), "sinks": sinks}), 1)


def context(home: Home) -> SinkContext:
    return replace(sink_context(Secrets().read_operators), places=Places(home))


def place(target: SinkTarget) -> DeltaRemoteSettings:
    return DeltaRemoteSettings.of(target)


def opened(home: Home, target: SinkTarget, table: Definition) -> DeltaRemoteSink:
    sink = DeltaRemoteSink(place(target), context(home))
    sink.prepare(table, {table.fingerprint: table}.__getitem__)
    return sink


def rows(version: int, *ids: int) -> Rows:
    columns = {
        "id": pa.array(ids, pa.int64()),
        "text": pa.array([f"{one} at {version}" for one in ids]),
        "_version": pa.array([version] * len(ids), pa.int64()),
        "_import": pa.array(["imp_1"] * len(ids)),
        "_row": pa.array(range(1, len(ids) + 1), pa.int64()),
        "_deleted": pa.array([False] * len(ids)),
    }
    return Rows((f"imp_1/{version}",), (version,), lambda: iter([pa.RecordBatch.from_pydict(columns)]))


def as_staged(folder: Path, table: Definition, version: int, *ids: int) -> Rows:
    """As a queue has them: a file that the validating task wrote."""
    told = rows(version, *ids)
    content = pa.Table.from_batches(told.open()).drop_columns(["_deleted"])
    chunks = (StagedChunk(told.chunks[0], 0, len(ids), version),)
    file = write_data_file(Store(folder), content, table.table.primary_key, "imp_1-0", chunks)
    return replace(told, open=lambda: iter(()), staged=(file, folder / file.path))


class Courier:
    """A table's queue, and who delivers from it."""

    def __init__(self, home: Home, target: SinkTarget, table: Definition) -> None:
        self._home, self._target, self._table = home, target, table
        home.definitions.mkdir()
        home.definition(table.fingerprint).write_bytes(table.to_json())
        self._queue = queue_at(home, target.kind, "acme", "notes", target.name)

    def park(self, version: int, *values: tuple[int, bool], import_id: str = "imp_1", **more: Any) -> None:
        """(id, whether it is deleted) of each row; without any, a change of the table itself."""
        place, staged = self._home.table("acme", "notes"), None
        if values:
            told = pa.Table.from_batches(rows(version, *(key for key, _ in values)).open())
            told = told.set_column(told.num_columns - 1, "_deleted", pa.array([deleted for _, deleted in values]))
            chunks = (StagedChunk(f"{import_id}/{version}", 0, len(values), version),)
            staged = write_data_file(Store(place), told, ("id",), f"{import_id}-{version}", chunks)
        put(
            self._queue,
            StagedGroup(
                "acme", "notes", self._table.fingerprint, staged, ((import_id, version),), version=version, **more
            ),
            place,
        )

    def deliver(self) -> None:
        items = tuple(self._queue.items())
        order = Order(self._queue.pins, self._target, items)
        for _ in range(2 if items else 0):
            assert deliver(order, open_exchange(self._home.root), context(self._home)) == Delivered()
        self._queue.done(items)


def asked(home: Home, table: Definition, sql: str, limits: QueryLimits | None = None) -> list[list[Any]]:
    readable = ReadableTable("acme", "notes", stored_schema(table.columns), lambda: table_store(context(home), table))
    return run_query([readable], sql, limits or QueryLimits()).rows


def test_it_is_queried_like_any_table_whatever_is_lost_here(target: SinkTarget, home: Home) -> None:
    table = notes(target)
    sink = opened(home, target, table)
    sink.write(Work(table, [rows(1, 1, 2, 3), rows(5, 2)]))
    sql = "select id, text from acme.notes order by id"
    expected = [[1, "1 at 1"], [2, "2 at 5"], [3, "3 at 1"]]
    assert asked(home, table, sql) == expected
    for copy in copies_of(context(home), place(target), "acme", "notes").rglob("*"):
        if copy.is_file():
            copy.unlink()
    assert asked(home, table, sql) == expected


def test_couriers_bring_rows_and_deletes_whole_imports_and_truncations(target: SinkTarget, home: Home) -> None:
    table = notes(target)
    courier, sql = Courier(home, target, table), "select id, _version from acme.notes order by id"
    courier.park(1, (1, False), (2, False), (3, False))
    courier.park(4, (2, True), (3, False))
    courier.deliver()
    assert asked(home, table, sql) == [[1, 1], [3, 4]]
    courier.park(6, (1, False), import_id="imp_2", publish="atomic")
    courier.park(7, (5, False), import_id="imp_2", publish="atomic")
    courier.deliver()
    assert asked(home, table, sql) == [[1, 1], [3, 4]], "held until it is whole"
    before = load(table_store(context(home), table)).version
    courier.park(8, import_id="imp_2", kind="publish")
    courier.deliver()
    assert asked(home, table, sql) == [[1, 6], [3, 4], [5, 7]]
    assert load(table_store(context(home), table)).version == before + 1, "in one commit"
    courier.park(6, kind="truncate")
    courier.park(3, (9, False))
    courier.deliver()
    assert asked(home, table, sql) == [[5, 7]]


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "keyless"])
def test_a_file_that_was_staged_already_is_taken_as_it_is(
    target: SinkTarget, home: Home, tmp_path: Path, key: tuple[str, ...]
) -> None:
    table = notes(target, key)
    sink = opened(home, target, table)
    first, second = as_staged(tmp_path / "queue", table, 1, 1, 2), as_staged(tmp_path / "queue", table, 5, 2, 3)
    for work in ([first], [second, first], [rows(1, 1, 2)]):
        sink.write(Work(table, work))
    assert second.staged is not None
    expected = [[1, 1], [2, 5], [3, 5]] if key else [[1, 1], [2, 1], [2, 5], [3, 5]]
    assert asked(home, table, "select id, _version from acme.notes order by all") == expected
    assert table_store(context(home), table).exists(second.staged[0].path)


def test_a_query_does_not_bring_more_here_than_it_may(target: SinkTarget, home: Home) -> None:
    table = notes(target)
    opened(home, target, table).write(Work(table, [rows(1, *range(1000))]))
    for copy in copies_of(context(home), place(target), "acme", "notes").glob("*.parquet"):
        copy.unlink()
    with pytest.raises(TooLarge, match="s3://"):
        asked(home, table, "select count(*) from acme.notes", QueryLimits(fetched_bytes=10))
    assert asked(home, table, "select count(*) from acme.notes") == [[1000]]


def test_a_delivery_that_fails_half_way_is_the_target_s_fault_and_is_made_up_for(
    target: SinkTarget, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = notes(target)
    sink = opened(home, target, table)
    sink.write(Work(table, [rows(1, 1, 2)]))
    put = RemoteStore.put_if_absent

    def fails(self: RemoteStore, name: str, data: bytes) -> bool:
        if name.startswith("_delta_log/"):
            raise OSError("no route to host")
        return put(self, name, data)

    with monkeypatch.context() as broken:
        broken.setattr(RemoteStore, "put_if_absent", fails)
        with pytest.raises(OSError, match="no route") as met:
            sink.write(Work(table, [rows(7, 2, 3)]))
        assert sink.classify(met.value) is Fault.SINK
    again = opened(home, target, table)
    for _ in range(2):
        again.write(Work(table, [rows(7, 2, 3)]))
    stored = {row["id"]: row["_version"] for row in read_back(again, table).to_pylist()}
    assert stored == {1: 1, 2: 7, 3: 7}


def test_a_store_that_lets_two_have_one_name_is_refused(
    target: SinkTarget, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delta_remote.table_objects

    def careless(*told: Any) -> Any:
        objects = real(*told)

        def put_anyway(name: str, data: bytes) -> bool:
            objects.put(name, data)
            return True

        objects.put_if_absent = put_anyway  # type: ignore[method-assign]
        return objects

    monkeypatch.setattr(delta_remote, "table_objects", careless)
    with pytest.raises(Invalid, match="two writers"):
        DeltaRemoteSink(place(target), context(home)).check()


def bucket_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> DeltaRemoteSettings:
    monkeypatch.setenv("MILLRACE_SECRET_TEST_ACCESS", "a")
    monkeypatch.setenv("MILLRACE_SECRET_TEST_SECRET", "b")
    keys = {"access_key": "env:MILLRACE_SECRET_TEST_ACCESS", "secret_key": "env:MILLRACE_SECRET_TEST_SECRET"}
    settings = {"location": "s3://bucket/lake", "endpoint": endpoint, **keys}
    return place(SinkTarget("lake", REMOTE_DELTA_KIND, True, settings))


def test_a_store_that_checks_first_and_writes_then_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the second of two claims, as long as they do not come at the same moment."""
    with claim_server(is_atomic=False) as (endpoint, bucket):
        assert [bucket.claim("/x", b"a"), bucket.claim("/x", b"b")] == [True, False]
        with pytest.raises(Invalid, match="two writers") as refused:
            DeltaRemoteSink(bucket_at(endpoint, monkeypatch), context(home)).check()
        assert refused.value.code == "no_conditional_put"
        assert list(bucket.objects) == ["/x"], "nothing is left behind"


def test_a_store_that_lets_one_of_many_claims_win_is_taken(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with claim_server(is_atomic=True) as (endpoint, bucket):
        DeltaRemoteSink(bucket_at(endpoint, monkeypatch), context(home)).check()
        assert bucket.claims == 8 * (16 + 1)
        assert bucket.objects == {}


def test_many_deliveries_make_it_due_and_tidying_merges_its_files(
    target: SinkTarget, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "MOST_SMALL_FILES", 3)
    table, upkeep = notes(target), Upkeep()
    sink, root = opened(home, target, table), copies_of(context(home), place(target), "acme", "notes")
    for version in range(1, 6):
        sink.write(Work(table, [rows(version, version, 100)]))
    for _ in range(COMMITS):
        upkeep.note(root, spec_of(table), 1, place(target))
    (due,) = upkeep.take_due()
    tidy(due, context(home), open_exchange(home.root).keyring(KEYS_HERE), NO_FLOOR)
    store = table_store(context(home), table)
    assert asked(home, table, "select count(*), max(_version) from acme.notes") == [[6, 5]]
    assert len([entry for entry in store.list("") if entry.name.startswith("compacted-")]) == 1
    sink.write(Work(table, [rows(9, 100)]))
    assert asked(home, table, "select _version from acme.notes where id = 100") == [[9]]
