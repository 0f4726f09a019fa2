"""Statistics of data files never promise too much, are there whoever writes the file, and readers leave out files by them."""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.lake.actions import AddFile, DeletionVector
from millrace.lake.log import load
from millrace.lake.schema import TableSpec
from millrace.lake.statistics import file_statistics, finite_columns
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.duckdb_delta import delta_scan
from tests.support.examples import examples
from tests.support.lake import KEYED, apply_rows, stage

UTC = datetime.UTC
FILES, ROWS = 36, 100


def statistics(**columns: pa.Array) -> dict[str, Any]:
    table = pa.table(columns)
    footers: list[pq.FileMetaData] = []
    pq.write_table(table, pa.BufferOutputStream(), metadata_collector=footers, row_group_size=3, store_schema=False)
    told: dict[str, Any] = orjson.loads(file_statistics(footers[0], finite_columns(table)))
    return told


def bounds(values: pa.Array) -> tuple[Any, Any] | None:
    told = statistics(x=values)
    assert told["nullCount"]["x"] == values.null_count
    assert told["numRecords"] == len(values)
    return (told["minValues"]["x"], told["maxValues"]["x"]) if "minValues" in told else None


MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))


@examples(60)
@given(st.lists(st.none() | st.text(max_size=40), min_size=1, max_size=8))
def test_texts_are_between_their_bounds(values: list[str | None]) -> None:
    found, present = bounds(pa.array(values, pa.string())), [value for value in values if value is not None]
    if not present:
        assert found is None
    elif found is not None:
        assert found[0].encode() <= min(value.encode() for value in present)
        assert found[1].encode() >= max(value.encode() for value in present)
        assert max(map(len, found)) <= 32


@examples(60)
@given(st.lists(st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=4), min_size=1, max_size=8))
def test_decimals_are_between_their_bounds_as_doubles_and_exactly(values: list[Decimal | None]) -> None:
    values = [None if value is None or abs(value) >= 10**34 else value for value in values]
    found, present = bounds(pa.array(values, pa.decimal128(38, 4))), [value for value in values if value is not None]
    if present and found is not None:
        least, greatest = (Decimal(repr(bound)) for bound in found)
        assert least <= min(present)
        assert greatest >= max(present)
        assert len(greatest.normalize().as_tuple().digits) <= 15


@examples(60)
@given(st.lists(st.none() | MOMENTS, min_size=1, max_size=8), st.sampled_from(["UTC", None]))
def test_moments_are_between_their_bounds(values: list[datetime.datetime | None], zone: str | None) -> None:
    found, present = bounds(pa.array(values, pa.timestamp("us", tz=zone))), [v for v in values if v is not None]
    if present and found is not None:
        least, greatest = (datetime.datetime.fromisoformat(bound).replace(tzinfo=None) for bound in found)
        assert least <= min(present) < least + datetime.timedelta(milliseconds=1)
        assert greatest - datetime.timedelta(milliseconds=1) < max(present) <= greatest
        assert found[0].endswith("Z") == (zone is not None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, None, -5], pa.int64()), (-5, 3)),
        (pa.array([1 << 62, 0]), (0, 1 << 62)),
        (pa.array([0.5, -0.25], pa.float32()), (-0.25, 0.5)),
        (pa.array([0.5, math.nan]), None),
        (pa.array([0.5, math.inf]), None),
        (pa.array([1.5, -2.5, 0.0]), (-2.5, 1.5)),
        (pa.array([True, False]), None),
        (pa.array([b"a", b"b"]), None),
        (pa.array([None, None], pa.int64()), None),
        (pa.array([datetime.date(2024, 2, 29), datetime.date(1969, 1, 1)]), ("1969-01-01", "2024-02-29")),
        (pa.array(["z" * 40, "a" * 40]), ("a" * 32, "z" * 31 + "{")),
        (pa.array(["\U0010ffff" * 40]), None),
        (pa.array(["\ud7ff" * 40]), ("\ud7ff" * 32, "\ud7ff" * 31 + "\ue000")),
        (pa.array([["a"], ["b"]]), None),
        (pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), None),
        (pa.array([Decimal("0.10"), Decimal("12.50")], pa.decimal128(20, 2)), (0.1, 12.5)),
    ],
)  # fmt: skip
def test_bounds_are_what_every_reader_understands(values: pa.Array, expected: Any) -> None:
    if pa.types.is_nested(values.type):
        assert "nullCount" not in statistics(x=values)
    else:
        assert bounds(values) == expected


def test_fields_of_structs_have_statistics_and_lists_and_columns_behind_the_32nd_have_none() -> None:
    struct = pa.array(
        [{"a": 1, "b": {"c": "x"}}, None], pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
    )
    lists = pa.array([[1], []], pa.list_(pa.int64()))
    told = statistics(s=struct, m=lists, after=pa.array([1, 2]))
    assert told["minValues"] == {"s": {"a": 1, "b": {"c": "x"}}, "after": 1}
    assert told["nullCount"] == {"s": {"a": 1, "b": {"c": 1}}, "after": 0}
    many = statistics(**{f"c{number}": pa.array([number]) for number in range(40)})
    assert list(many["minValues"]) == [f"c{number}" for number in range(32)]


def test_bounds_stay_exact_when_rows_of_the_file_die() -> None:
    exact = '{"numRecords":3,"minValues":{"d":-99999999999999999.25,"n":12345678901234567890},"tightBounds":true}'
    file = AddFile("a.parquet", 1, 3, 0, DeletionVector("u", "x", 1, 1, 1), exact)
    stats = file.to_json()["add"]["stats"]
    assert '"d":-99999999999999999.25,"n":12345678901234567890' in stats
    assert orjson.loads(stats)["tightBounds"] is False
    assert AddFile.from_json(file.to_json()["add"]).to_json()["add"]["stats"] == stats


def counted(store: Store) -> list[dict[str, Any]]:
    return [orjson.loads(file.stats or "{}") for file in load(store).files.values()]


def test_compaction_and_rewrites_make_statistics_too(tmp_path: Path) -> None:
    kept, never = LakeTable(Store(tmp_path / "a"), KEYED), TableSpec("never", KEYED.schema, ("id",), "never")
    for number in range(60):
        apply_rows(kept, [(key, 1) for key in range(10 * number, 10 * number + 10)])
    kept.maintain()
    assert [(told["minValues"]["id"], told["maxValues"]["id"]) for told in counted(kept.store)] == [(0, 599)]
    rewritten = LakeTable(Store(tmp_path / "b"), never)
    apply_rows(rewritten, [(key, 1) for key in range(10)])
    apply_rows(rewritten, [(0, 2), (9, 2)])
    assert sorted(told["maxValues"]["id"] for told in counted(rewritten.store)) == [8, 9]


@pytest.fixture(scope="module")
def one_of_36(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 36 files of which all but the one with `id = 1` are gone."""
    root = tmp_path_factory.mktemp("pruned")
    table = LakeTable(Store(root), KEYED)
    files = [stage(table.store, [(key, 1) for key in range(n * ROWS, (n + 1) * ROWS)]) for n in range(FILES)]
    table.apply(files)
    for file in files[1:]:
        table.store.delete(file.path)
    return root


def by_polars(root: Path) -> list[Any]:
    return pl.scan_delta(str(root)).filter(pl.col("id") == 1).select("id").collect()["id"].to_list()


def by_deltalake(root: Path) -> list[Any]:
    table = deltalake.DeltaTable(str(root))
    found = deltalake.QueryBuilder().register("t", table).execute("select id from t where id = 1").read_all()
    return list(pa.table(found)["id"].to_pylist())


def by_pyarrow(root: Path) -> list[Any]:
    data = deltalake.DeltaTable(str(root)).to_pyarrow_dataset()
    return list(data.to_table(filter=pc.field("id") == 1)["id"].to_pylist())


def by_duckdb(root: Path) -> list[Any]:
    return [key for (key,) in delta_scan(root, None, "id", where="id = 1")]


@pytest.mark.parametrize("reader", [by_polars, by_deltalake, by_pyarrow, by_duckdb])
def test_readers_open_only_files_that_may_have_the_row(one_of_36: Path, reader: Callable[[Path], list[Any]]) -> None:
    assert reader(one_of_36) == [1]
