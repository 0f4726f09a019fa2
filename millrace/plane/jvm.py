"""Spark's JVM outlives a killed driver for a moment; two of them must never work on the same checkpoints."""

import json
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from millrace.model.names import Home

WAIT_SECONDS = 15


def remember(home: Home, spark: SparkSession) -> None:
    """Notes which JVM works on this home."""
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    _note(home).parent.mkdir(parents=True, exist_ok=True)
    _note(home).write_text(json.dumps({"pid": pid, "born": psutil.Process(pid).create_time()}))


def outlive_none(home: Home) -> None:
    """Ends the JVM of an earlier data plane if it is still there."""
    try:
        noted = json.loads(_note(home).read_text())
        process = psutil.Process(noted["pid"])
        if process.create_time() != noted["born"]:
            return
        process.kill()
        process.wait(WAIT_SECONDS)
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return


def _note(home: Home) -> Path:
    return home.root / "run" / "spark-jvm.json"
