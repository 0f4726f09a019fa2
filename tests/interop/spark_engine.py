"""A process of Spark with Delta, without any help of ours: `python -m tests.interop.spark_engine JARS`. Runs with PySpark 3.5
and with PySpark 4, in their own environments."""

import sys

from pyspark.sql import SparkSession

from tests.interop.cells import row_texts
from tests.interop.serving import serve

TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Spark 3.5 asks how to read days before 1582 in files of other writers. As they are.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # VACUUM lists folders with so many tasks, by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.log.level": "ERROR",
    # The tables are small: compiling a query takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xmn800m",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", sys.argv[1])
    for name, value in OPTIONS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def read(root: str, version: int, columns: list[str]) -> list[str]:
        frame = spark.read.format("delta").option("versionAsOf", version).load(root)
        return row_texts(frame.select(*(f"`{name}`" for name in columns)).collect())

    def count(root: str, condition: str) -> int:
        # The rows, not their number: the log has that without opening a file.
        return len(spark.read.format("delta").load(root).where(condition).collect())

    def run(statement: str, timestamps: str) -> None:
        spark.conf.set(TIMESTAMPS, timestamps)
        spark.sql(statement).collect()

    def append(root: str, source: str, timestamps: str) -> None:
        spark.conf.set(TIMESTAMPS, timestamps)
        spark.read.parquet(source).write.format("delta").mode("append").save(root)

    commands = {"read": read, "count": count, "run": run, "append": append}
    serve(commands, {"version": spark.version}, at_once=2)


if __name__ == "__main__":
    main()
