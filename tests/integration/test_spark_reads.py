"""Spark with the Delta library, and no help of ours, reads what the lake has committed."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.table import LakeTable


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


def test_spark_sees_each_key_once_in_every_version(tmp_path: Path, jars: Callable[[str], list[Path]]) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = LakeTable.open(tmp_path / "lake", TableSpec("numbers", schema, key=("id",)))
    for version in range(1, 26):
        commit(table, version, range(version * 10, version * 10 + 100), f"v{version}-")
    table.maintain()
    commit(table, 99, range(0, 400, 7), "last-")
    spark = (
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
    try:
        newest = table.snapshot().version
        for version in (0, 3, 20, 24, newest):
            frame = spark.read.format("delta").option("versionAsOf", version).load(str(tmp_path / "lake"))
            assert frame.count() == frame.select("id").distinct().count()
        latest = {row.id: row.text for row in spark.read.format("delta").load(str(tmp_path / "lake")).collect()}
    finally:
        spark.stop()
    expected = {n: f"v{version}-{n}" for version in range(1, 26) for n in range(version * 10, version * 10 + 100)}
    expected |= {n: f"last-{n}" for n in range(0, 400, 7)}
    assert latest == expected
