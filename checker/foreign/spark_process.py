"""The process of Spark: `python -m checker.foreign.spark_process JARS`. One statement a line in; an empty text, or what Spark
says against it, out."""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from checker.foreign.log_store import CLASS, make_jar
from checker.foreign.spark_writer import MARK

MOST_WORDS = 1000
OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Imports commit at the same time.
    "spark.delta.logStore.file.impl": CLASS,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.log.level": "ERROR",
}


def main() -> None:
    jars = sys.argv[1].split(",")
    with tempfile.TemporaryDirectory() as folder:
        _serve([*jars, str(make_jar(jars, Path(folder)))])


def _serve(jars: list[str]) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(jars))
    for name, value in OPTIONS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        answer = ""
        try:
            spark.sql(json.loads(line)["statement"]).collect()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:MOST_WORDS]
        sys.stdout.buffer.write(MARK + json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
