"""Starts the Python workers before the first chunk arrives: each judges and packs a row made for this."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.declare.table import parse_table
from millrace.lake.sidecar import encode_parquet
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import define
from millrace.validate.judge import judge

_SCHEMA = {"type": "record", "name": "warm", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "double"}]}


def warm_up(spark: SparkSession) -> None:
    cores = spark.sparkContext.defaultParallelism
    spark.range(cores, numPartitions=cores).mapInArrow(_judge_a_row, "id long").collect()


def _judge_a_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    definition = define("warm", parse_table({"schema": _SCHEMA}), 1)
    layout = TextLayout(("a", "b"), ",", '"', "")
    for batch in batches:
        body = b"1,2.5\nx,y\n"
        judged = judge(ChunkHeader("", 0, 1, "", "csv", 1, 1, 2, len(body), 0, layout), body, definition)
        encode_parquet(judged.accepted)
        yield batch
