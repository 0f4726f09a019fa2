"""Upkeep of tables as Spark tasks beside the queries: the driver only decides what is due."""

import threading
import time
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.model.names import Home
from millrace.observe import log, observe
from millrace.settings import KmsSettings
from millrace.sink.delta.upkeep import VACUUM_SECONDS, Due, Upkeep, drop_delivered, tidy

LOOK_SECONDS = 5.0
POOL = "upkeep"


def keep_tidy(spark: SparkSession, home: Home, upkeep: Upkeep, kms: KmsSettings) -> None:
    """Starts the thread that tidies what is due, one table at a time. It ends with the process."""
    threading.Thread(target=_run, args=(spark, home, upkeep, kms), name="upkeep", daemon=True).start()


def _run(spark: SparkSession, home: Home, upkeep: Upkeep, kms: KmsSettings) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)
    swept = 0.0
    while True:
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - swept > VACUUM_SECONDS:
            swept = time.monotonic()
            _sweep(home)
        for due in upkeep.take_due():
            try:
                context.parallelize([due], 1).foreach(partial(_tidy, kms))
                log("table_tidied", table=str(due.root))
            except Exception as error:
                # The table stands as it was; it is due again after further commits.
                observe("trouble", kind="upkeep", table=str(due.root), error=f"{type(error).__name__}: {error}"[:500])


def _sweep(home: Home) -> None:
    try:
        drop_delivered(home)
    except OSError as error:
        observe("trouble", kind="upkeep", error=f"{type(error).__name__}: {error}"[:500])


def _tidy(kms: KmsSettings, due: Due) -> None:
    try:
        tidy(*due, kms=kms)
    finally:
        # The worker lives on; what a rewrite took must not stay with it.
        pa.default_memory_pool().release_unused()
