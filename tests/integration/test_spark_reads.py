"""Spark with the Delta library, and no help of ours, reads what the lake has committed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.revisions import ID, Revisions, column, rows_of, write_under
from tests.support.spark import end_session


@pytest.fixture(scope="module")
def spark(jars: Callable[[str], list[Path]]) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars("delta"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    gateway = SparkContext._gateway
    assert gateway is not None
    yield session
    end_session(session)
    assert gateway.proc.poll() is not None, "the JVM still runs"


def commit(table: LakeTable, version: int, ids: range, text: str) -> None:
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"{text}{n}" for n in ids],
            "_version": pa.array([version] * len(ids), pa.int64()),
            "_import": [f"imp{version}"] * len(ids),
            "_row": pa.array(range(1, len(ids) + 1), pa.int64()),
        }
    )
    chunk = StagedChunk(f"imp{version}/0", 0, len(ids), version)
    table.apply([write_data_file(table.store, rows, table.spec.key, f"imp{version}-0", [chunk])])


@pytest.mark.slow
def test_spark_sees_each_key_once_in_every_version(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = LakeTable(Store(tmp_path / "lake"), TableSpec("numbers", schema, key=("id",)))
    for version in range(1, 26):
        commit(table, version, range(version * 10, version * 10 + 100), f"v{version}-")
    table.maintain()
    commit(table, 99, range(0, 400, 7), "last-")
    newest = table.snapshot().version
    for version in (0, 3, 20, 24, newest):
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(tmp_path / "lake"))
        assert frame.count() == frame.select("id").distinct().count()
    latest = {row.id: row.text for row in spark.read.format("delta").load(str(tmp_path / "lake")).collect()}
    expected = {n: f"v{version}-{n}" for version in range(1, 26) for n in range(version * 10, version * 10 + 100)}
    expected |= {n: f"last-{n}" for n in range(0, 400, 7)}
    assert latest == expected


def test_spark_sees_deletes_truncations_and_every_revision(tmp_path: Path, spark: SparkSession) -> None:
    revisions = Revisions()
    first = revisions.add(ID, column("n", "int"), column("x", "float"), column("old", "string"))
    table = revisions.open(tmp_path)
    rows = [{"id": key, "n": key, "x": key / 2, "old": f"o{key}"} for key in range(300)]
    write_under(table, first, 1, *rows[:200])
    write_under(table, first, 3, *rows[200:], {"id": 5, "_deleted": True}, {"id": 250, "_deleted": True})
    widened = revisions.add(ID, column("n", "long"), column("x", "double"), column("old", "string"))
    write_under(table, widened, 5, {"id": 7, "n": 1 << 40, "x": 0.1, "old": "wide"})
    renamed = revisions.add(
        ID, column("n", "double"), column("x", "double"), column("new", "string", "old"), column("d", "int", default=4)
    )
    table.prepare(renamed)
    write_under(table, first, 4, {"id": 8, "n": 8, "x": 8.0, "old": "late"}, {"id": 5, "n": 0, "x": 0.0, "old": "back"})
    write_under(table, first, 2, {"id": 9, "n": 8, "x": 8.0, "old": "beaten"}, floor=2)
    table.maintain()

    def seen(version: int) -> list[dict[str, Any]]:
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(tmp_path))
        ours = [name for name in frame.columns if not name.startswith("_")]
        return [row.asDict() for row in frame.select(*ours).orderBy("id").collect()]

    for version in range(table.snapshot().version + 1):
        assert seen(version) == rows_of(table, version)
    assert len(rows_of(table)) == 102

    again = revisions.add(column("id", "string"), floor=50)
    write_under(table, again, 51, {"id": "first of the second life"})
    assert seen(table.snapshot().version) == [{"id": "first of the second life"}]
