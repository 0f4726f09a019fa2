"""Plain Delta readers, with no help of ours, see what we see: in every version, for every type."""

import datetime
import decimal
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from millrace.lake.log import load
from millrace.lake.read import scan
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.lake import KEYED, READERS, apply_rows, content

UTC = datetime.UTC
EVERY_TYPE = {
    "flag": pa.array([True, None]),
    "byte": pa.array([1, None], pa.int8()),
    "short": pa.array([2, None], pa.int16()),
    "number": pa.array([3, None], pa.int32()),
    "id": pa.array([4, 5], pa.int64()),
    "real": pa.array([0.5, None], pa.float32()),
    "double": pa.array([0.25, None]),
    "text": pa.array(['ü, "quoted"\n', None]),
    "bytes": pa.array([b"\0\xff", None]),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "day": pa.array([datetime.date(2024, 2, 29), None]),
    "instant": pa.array([datetime.datetime(2024, 2, 29, 12, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
    "local": pa.array([datetime.datetime(2024, 2, 29, 12), None], pa.timestamp("us")),
    "price": pa.array([decimal.Decimal("12.50"), None], pa.decimal128(20, 2)),
    "tags": pa.array([["a", None], None], pa.list_(pa.string())),
    "size": pa.array([{"width": 1, "unit": "m"}, None], pa.struct([("width", pa.int32()), ("unit", pa.string())])),
    "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "name, with spaces": pa.array(["x", None]),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_version_reads_the_same_everywhere(tmp_path: Path, reader) -> None:  # type: ignore[no-untyped-def]
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(5000)])
    apply_rows(table, [(key, 2) for key in range(10)])
    apply_rows(table, [(key, 3) for key in range(0, 5000, 2)], [(key, 4) for key in range(1000)])
    apply_rows(table, [(key, 2) for key in range(4990, 5010)])
    apply_rows(table, [(key, 6) for key in range(6000)])
    table.maintain()
    for version in range(load(table.store).version + 1):
        assert reader(tmp_path, version) == content(table, version)


def test_pandas_reads_a_table_of_which_no_key_was_overwritten(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1)], [(2, 1), (2, 2)])
    frame = deltalake.DeltaTable(str(tmp_path)).to_pandas()
    assert sorted(zip(frame["id"], frame["_version"], strict=True)) == [(1, 1), (2, 2)]
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 2


def test_every_type_comes_back(tmp_path: Path) -> None:
    declared = pa.table(EVERY_TYPE)
    spec = TableSpec("types", declared.schema, ("id",))
    table = LakeTable(Store(tmp_path), spec)
    ours = {"_version": pa.array([1, 1]), "_import": pa.array(["i", "i"]), "_row": pa.array([1, 2])}
    table.apply([write_data_file(table.store, pa.table({**EVERY_TYPE, **ours}), spec.key, "part")])
    expected = declared.to_pylist()
    mine = scan(table.store, table.snapshot(), list(EVERY_TYPE)).to_pylist()
    theirs = pa.table(deltalake.DeltaTable(str(tmp_path)).scan().read_all()).select(list(EVERY_TYPE)).to_pylist()
    assert mine == theirs == expected
    assert pl.scan_delta(str(tmp_path)).select("id", "text", "price").collect().height == 2
