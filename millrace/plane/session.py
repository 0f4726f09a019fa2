"""The Spark session of the data plane: its JVM, of which there is only one, and its warm Python workers."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millrace.declare.table import parse_table
from millrace.exchange.data_plane import DataPlaneNotes, Jvm
from millrace.lake.sidecar import encode_parquet
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import define
from millrace.settings import SparkSettings
from millrace.validate.judge import judge

ARROW_BATCH_BYTES = 8 << 20
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_WARM_FIELDS = [{"name": "a", "type": "int"}, {"name": "b", "type": "double"}]
_JVM_SECONDS = 15
# Names of options whose values are secret, as Spark itself tells them.
_SECRET = re.compile(r"secret|password|token|access\.?key|credential", re.IGNORECASE)


def open_session(settings: SparkSettings, jars: list[Path], scratch: Path) -> SparkSession:
    """A session that judges chunks in warm Python workers and retries a task before it gives up a batch."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A forked worker must not inherit a thread pool, and two workers on two cores need no more threads.
    os.environ.update(POLARS_MAX_THREADS="1", OMP_NUM_THREADS="1")
    options = _options(settings, jars, scratch)
    # Every user of the machine can read the JVM's arguments, so the JVM gets secret options later, through its gateway.
    arguments = {name: value for name, value in options.items() if not _SECRET.search(name)}
    gateway = launch_gateway(_conf(arguments))  # type: ignore[no-untyped-call]
    SparkContext(conf=_conf(options), gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _conf(options: dict[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(options.items()))


def _options(settings: SparkSettings, jars: list[Path], scratch: Path) -> dict[str, str]:
    cores = os.cpu_count() or 2
    # More tasks than cores: tasks of a small file run beside those of a large one, and the kernel shares the cores.
    slots = 2 * cores + 2
    return {
        "spark.app.name": "millrace",
        "spark.master": settings.master or f"local[{slots},4]",
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        # The JVM only moves bytes; the optimising compiler would take a third of the cores from the workers.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Every user of the machine can connect to loopback: who does not know the secret gets nothing.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        "spark.python.daemon.module": "millrace.plane.daemon",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
        "spark.sql.streaming.checkpointFileManagerClass": _LOCAL_CHECKPOINTS,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "WARN",
        **{name: value.get_secret_value() for name, value in settings.options.items()},
    }


def warm_up(spark: SparkSession) -> None:
    """Starts the Python workers before the first chunk arrives: each judges and packs a row made for this."""
    cores = spark.sparkContext.defaultParallelism
    spark.range(cores, numPartitions=cores).mapInArrow(_judge_a_row, "id long").collect()


def _judge_a_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    definition = define("warm", parse_table({"schema": {"type": "record", "name": "warm", "fields": _WARM_FIELDS}}), 1)
    layout = TextLayout(("a", "b"), ",", '"', "")
    for batch in batches:
        body = b"1,2.5\nx,y\n"
        judged = judge(ChunkHeader("", 0, 1, "", "csv", 1, 1, 2, len(body), 0, layout), body, definition)
        encode_parquet(judged.accepted)
        yield batch


def remember(notes: DataPlaneNotes, spark: SparkSession) -> None:
    """Notes which JVM works for this platform."""
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    notes.note_jvm(Jvm(pid, psutil.Process(pid).create_time()))


def outlive_none(notes: DataPlaneNotes) -> None:
    """Ends the JVM of an earlier data plane if it is still there. It outlives a killed driver for a moment, and two of them
    must never work on the same checkpoints."""
    noted = notes.jvm()
    if noted is None:
        return
    try:
        process = psutil.Process(noted.pid)
        if process.create_time() != noted.born:
            return
        process.kill()
        process.wait(_JVM_SECONDS)
    except psutil.NoSuchProcess:
        return
