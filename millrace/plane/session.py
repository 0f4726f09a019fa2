"""The Spark session of the data plane."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.settings import SparkSettings

ARROW_BATCH_BYTES = 8 << 20
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def open_session(settings: SparkSettings, jars: list[Path], scratch: Path) -> SparkSession:
    """A session that judges chunks in warm Python workers and retries a task before it gives up a batch."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A forked worker must not inherit a thread pool, and two workers on two cores need no more threads.
    os.environ.update(POLARS_MAX_THREADS="1", OMP_NUM_THREADS="1")
    cores = os.cpu_count() or 2
    options = {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        # The JVM only moves bytes; the optimising compiler would take a third of the cores from the workers.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
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
        **settings.options,
    }
    builder = SparkSession.builder.appName("millrace").master(settings.master or f"local[{_slots(cores)},4]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _slots(cores: int) -> int:
    """More tasks than cores: tasks of a small file run beside those of a large one, and the kernel shares the cores."""
    return 2 * cores + 2
