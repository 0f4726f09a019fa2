"""Queries as users send them: over committed tables, in their own process, within limits, and no further."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from millrace.arrow.types import OWN_COLUMNS
from millrace.exchange.home import Home
from millrace.lake.read import live_files
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.errors import Invalid, MillraceError, TooLarge
from millrace.read import query as query_module
from millrace.read.query import QueryLimits, QueryResult, ReadableTable, run_query
from millrace.read.query_child import NICE
from tests.support.foreign import commit, file_of
from tests.support.waiting import wait_until

DECLARED = pa.schema([("id", pa.int64()), ("filename", pa.string())])


class Lake:
    """Tables of two tenants under one home."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)

    def open(
        self, tenant: str, table: str, declared: pa.Schema = DECLARED, key: tuple[str, ...] = ("id",)
    ) -> LakeTable:
        return LakeTable(Store(self.home.table(tenant, table)), TableSpec(table, declared, key))

    def put(self, table: LakeTable, rows: list[dict[str, Any]], version: int) -> None:
        own = [{**row, "_version": version, "_import": "imp", "_row": n} for n, row in enumerate(rows, 1)]
        schema = pa.schema([*table.spec.schema, *OWN_COLUMNS])
        staged = write_data_file(table.store, pa.Table.from_pylist(own, schema), table.spec.key, f"imp-{version}")
        table.apply([staged])

    def readable(self, tenant: str, table: str, declared: pa.Schema = DECLARED) -> ReadableTable:
        place = self.home.table(tenant, table)
        return ReadableTable(tenant, table, pa.schema([*declared, *OWN_COLUMNS]), lambda: Store(place))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("home"))
    orders = lake.open("acme", "orders")
    lake.put(orders, [{"id": n, "filename": f"old {n}"} for n in range(100)], version=1)
    lake.put(orders, [{"id": n, "filename": f"new {n}"} for n in range(50, 120)], version=2)
    lake.put(orders, [{"id": 7, "filename": "newest"}], version=3)
    lake.put(lake.open("other", "secrets"), [{"id": 1, "filename": "secret"}], version=1)
    return lake


def ask(lake: Lake, sql: str, limits: QueryLimits | None = None) -> QueryResult:
    return run_query([lake.readable("acme", "orders"), lake.readable("acme", "nothing")], sql, limits or QueryLimits())


def test_a_view_shows_each_key_once_at_its_newest_version(lake: Lake) -> None:
    found = ask(lake, "SELECT filename, _version FROM acme.orders WHERE id IN (7, 49, 50, 119) ORDER BY id")
    assert found.rows == [["newest", 3], ["old 49", 1], ["new 50", 2], ["new 119", 2]]
    assert ask(lake, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM Acme.ORDERS").rows == [
        [120, 120, 0, 119]
    ]
    assert found.columns == [("filename", "VARCHAR"), ("_version", "BIGINT")]
    assert not found.truncated


def test_files_whose_names_look_like_patterns_are_read_once(tmp_path: Path) -> None:
    """Other engines choose the names of their files."""
    lake = Lake(tmp_path)
    table = lake.open("acme", "orders")
    lake.put(table, [{"id": 1, "filename": "ours"}], version=1)
    root = Path(table.store.path("x")).parent
    for number, name in enumerate(("ab.parquet", "a*.parquet", "[a]b.parquet", "a?.parquet"), 2):
        commit(
            root, file_of(root, pa.table({"id": pa.array([number, 90 + number]), "filename": ["x", "y"]}), name=name)
        )
    lake.put(table, [{"id": 93, "filename": "new"}], version=2)
    found = ask(lake, "SELECT id, filename FROM acme.orders WHERE id > 2 ORDER BY id")
    assert found.rows == [[3, "x"], [4, "x"], [5, "x"], [92, "y"], [93, "new"], [94, "y"], [95, "y"]]


def test_a_query_opens_only_files_that_may_have_its_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.open("acme", "orders")
    for number in range(36):
        lake.put(
            table, [{"id": n, "filename": f"name {n}"} for n in range(10 * number, 10 * number + 10)], version=number
        )
    lake.put(table, [{"id": 1, "filename": "marked"}], version=50)
    kept = [
        file for file in table.snapshot().files.values() if '"minValues":{"id":1,' in str(file.stats) or file.dead_rows
    ]
    assert len(kept) == 2
    for file in table.snapshot().files.values():
        if file not in kept:
            table.store.delete(file.name)
    assert ask(lake, "SELECT filename FROM acme.orders WHERE id = 1").rows == [["marked"]]
    assert ask(lake, "SELECT sum(id) FROM acme.orders AS o WHERE o.id BETWEEN 0 AND 9").rows == [[45]]
    with pytest.raises(MillraceError):
        ask(lake, "SELECT filename FROM acme.orders WHERE id = 10")


def test_a_table_without_files_is_an_empty_view_with_its_types(lake: Lake) -> None:
    found = ask(lake, "FROM acme.nothing")
    assert found.rows == []
    assert found.columns == [
        ("id", "BIGINT"), ("filename", "VARCHAR"), ("_version", "BIGINT"), ("_import", "VARCHAR"), ("_row", "BIGINT"),
    ]  # fmt: skip


def test_a_file_older_than_a_column_gives_null_for_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.open("acme", "grown")
    lake.put(table, [{"id": 1, "filename": "a"}], version=1)
    wider = pa.schema([*DECLARED, ("file_row_number", pa.decimal128(9, 2))])
    lake.put(
        lake.open("acme", "grown", wider), [{"id": 2, "filename": "b", "file_row_number": Decimal("1.50")}], version=2
    )
    readable = [lake.readable("acme", "grown", pa.schema([*wider, ("later", pa.date32())]))]
    found = run_query(readable, "SELECT id, file_row_number, later FROM grown ORDER BY id", QueryLimits())
    assert found.rows == [[1, None, None], [2, "1.50", None]]


def test_every_kind_of_value_survives_as_json(tmp_path: Path) -> None:
    kinds = pa.schema(
        [
            ("id", pa.int64()), ("flag", pa.bool_()), ("small", pa.int32()), ("real", pa.float32()), ("wide", pa.float64()),
            ("raw", pa.binary()), ("day", pa.date32()), ("moment", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(38, 4)), ("tags", pa.list_(pa.field("element", pa.string()))),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("place", pa.struct([("x", pa.float64()), ("na\"me's", pa.string())])),
        ]
    )  # fmt: skip
    row = {
        "id": 1, "flag": True, "small": -3, "real": 0.5, "wide": float("nan"), "raw": b"\x00\xff", "day": date(2024, 2, 29),
        "moment": datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC), "price": Decimal("12345678901234567890.1230"),
        "tags": ["a", None], "counts": [("k", 2)], "place": {"x": float("inf"), "na\"me's": "ü"},
    }  # fmt: skip
    lake = Lake(tmp_path)
    lake.put(lake.open("acme", "kinds", kinds), [row], version=1)
    found = run_query(
        [lake.readable("acme", "kinds", kinds)],
        f"SELECT * EXCLUDE ({'_version, _import, _row'}) FROM kinds",
        QueryLimits(),
    )
    assert found.rows == [
        [
            1, True, -3, 0.5, "NaN", "AP8=", "2024-02-29", "2024-02-29T12:00:00.000001+00:00", "12345678901234567890.1230",
            ["a", None], {"k": 2}, {"x": "Infinity", "na\"me's": "ü"},
        ]
    ]  # fmt: skip
    assert dict(found.columns)["price"] == "DECIMAL(38,4)"


def test_rows_and_bytes_are_limited_and_say_so(lake: Lake) -> None:
    exactly = ask(lake, "SELECT id FROM orders ORDER BY id", QueryLimits(rows=120))
    assert (len(exactly.rows), exactly.truncated) == (120, False)
    fewer = ask(lake, "SELECT id FROM orders ORDER BY id", QueryLimits(rows=119))
    assert (fewer.rows[-1], fewer.truncated) == ([118], True)
    wide = ask(lake, "SELECT repeat('x', 1000) FROM orders", QueryLimits(bytes=10_000))
    assert (len(wide.rows), wide.truncated) == (9, True)
    with pytest.raises(TooLarge, match="first row alone"):
        ask(lake, "SELECT repeat('x', 20000)", QueryLimits(bytes=10_000))


def test_time_is_limited(lake: Lake) -> None:
    started = time.monotonic()
    with pytest.raises(TooLarge, match=r"longer than 1\.5 s") as refusal:
        ask(lake, "SELECT count(*) FROM range(1000000000000) WHERE range % 7 = 3", QueryLimits(seconds=1.5))
    assert refusal.value.code == "query_timeout"
    assert time.monotonic() - started < 60
    assert not any("query_child" in " ".join(child.cmdline()) for child in psutil.Process().children())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(a.i) FROM (SELECT DISTINCT i, i::VARCHAR FROM range(100000000) t(i)) a",
        "SELECT length(repeat('x', 2000000000))",
        "SELECT repeat('x', 100000000) FROM range(100)",
    ],
)
def test_memory_is_limited(lake: Lake, sql: str) -> None:
    with pytest.raises(TooLarge, match="more than its 128 MB of memory") as refusal:
        ask(lake, sql, QueryLimits(memory_mb=128, bytes=1 << 40))
    assert refusal.value.code == "query_memory"


def test_a_wrong_query_gets_duckdbs_reason(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r'column "nme" not found') as refusal:
        ask(lake, "SELECT nme FROM acme.orders")
    assert refusal.value.code == "query_failed"
    with pytest.raises(Invalid, match="syntax error"):
        ask(lake, "SELEC 1")
    with pytest.raises(Invalid, match=r"nested too deeply|Max expression depth"):
        ask(lake, "SELECT * FROM " + "(SELECT * FROM " * 4000 + "acme.orders" + ")" * 4000)


def test_nothing_but_the_callers_views_can_be_read(lake: Lake) -> None:
    table = lake.open("acme", "orders")
    own = live_files(table.store, table.snapshot())[0].path
    secrets = lake.open("other", "secrets")
    foreign = live_files(secrets.store, secrets.snapshot())[0].path
    attempts = [
        "SELECT * FROM other.secrets",
        f"SELECT * FROM read_parquet('{foreign}')",
        f"SELECT * FROM '{foreign}'",
        f"SELECT * FROM read_parquet('{own}')",
        f"SELECT * FROM acme.orders, '{own}'",
        f"SELECT * FROM acme.orders, (WITH \"{own}\" AS (SELECT 1) FROM \"{own}\"), '{own}'",
        "SELECT * FROM acme.orders, read_text('/etc/passwd')",
        "SELECT current_setting('allowed_paths') FROM acme.orders",
        "SELECT * FROM main.\"millrace dead positions\"",
        "WITH gone AS (DELETE FROM acme.orders RETURNING *) SELECT * FROM gone",
        "COPY (SELECT 1) TO '/tmp/millrace-query-out.csv'",
        "SELECT 1; SELECT 2",
    ]  # fmt: skip

    def outcome(sql: str) -> object:
        try:
            return ask(lake, sql)
        except MillraceError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        for sql, seen in zip(attempts, pool.map(outcome, attempts), strict=True):
            assert isinstance(seen, Invalid), f"{sql}: {seen}"
            assert "secret'" not in str(seen)
    assert not Path("/tmp/millrace-query-out.csv").exists()


def test_a_query_that_kills_its_process_hurts_nobody_else(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class DyingPopen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            dies = "import sys, os; sys.stdin.readline(); os.abort()"
            super().__init__([sys.executable, "-S", "-c", dies], **options)
            started.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(query_module.subprocess, "Popen", DyingPopen)
        with pytest.raises(Invalid, match="ended the process") as refusal:
            ask(lake, "SELECT 1")
    assert refusal.value.code == "query_crashed"
    assert [child.returncode is not None for child in started] == [True]
    assert ask(lake, "SELECT 1").rows == [[1]]


def test_the_child_sees_nothing_of_our_environment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_STORE_URL", "postgresql://user:password@host/db")
    seen: list[dict[str, str]] = []

    class WatchedPopen(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            seen.append(options["env"])
            super().__init__(command, **options)

    monkeypatch.setattr(query_module.subprocess, "Popen", WatchedPopen)
    assert ask(lake, "SELECT 1").rows == [[1]]
    assert [set(environment) for environment in seen] == [{"PYTHONPATH", "LANG"}]


def test_queries_leave_the_processor_to_imports() -> None:
    with query_module._child() as child:
        nice = psutil.Process(child.pid).nice
        wait_until(lambda: nice() == os.nice(0) + NICE, 20, "the process to step back")
