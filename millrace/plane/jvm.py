"""Spark's JVM outlives a killed driver for a moment; two of them must never work on the same checkpoints."""

import psutil
from pyspark.sql import SparkSession

from millrace.exchange.data_plane import DataPlaneNotes, Jvm

WAIT_SECONDS = 15


def remember(notes: DataPlaneNotes, spark: SparkSession) -> None:
    """Notes which JVM works for this platform."""
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    notes.note_jvm(Jvm(pid, psutil.Process(pid).create_time()))


def outlive_none(notes: DataPlaneNotes) -> None:
    """Ends the JVM of an earlier data plane if it is still there."""
    noted = notes.jvm()
    if noted is None:
        return
    try:
        process = psutil.Process(noted.pid)
        if process.create_time() != noted.born:
            return
        process.kill()
        process.wait(WAIT_SECONDS)
    except psutil.NoSuchProcess:
        return
