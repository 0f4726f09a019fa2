"""Upkeep of tables as Spark tasks beside the queries: the driver only decides what is due."""

import threading
import time
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.exchange.mailboxes import Exchange
from millrace.observe import log, observe
from millrace.settings import KmsSettings
from millrace.sink.context import SinkContext
from millrace.sink.delta.upkeep import VACUUM_SECONDS, Due, Upkeep, drop_delivered, settled_version, tidy

LOOK_SECONDS = 5.0
POOL = "upkeep"


def keep_tidy(spark: SparkSession, exchange: Exchange, sinks: SinkContext, upkeep: Upkeep, kms: KmsSettings) -> None:
    """Starts the thread that tidies what is due, one table at a time. It ends with the process."""
    threading.Thread(target=_run, args=(spark, exchange, sinks, upkeep, kms), name="upkeep", daemon=True).start()


def _run(spark: SparkSession, exchange: Exchange, sinks: SinkContext, upkeep: Upkeep, kms: KmsSettings) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)
    swept = 0.0
    while True:
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - swept > VACUUM_SECONDS:
            swept = time.monotonic()
            _sweep(exchange)
        for due in upkeep.take_due():
            try:
                context.parallelize([due], 1).foreach(
                    partial(_tidy, exchange, sinks, settled_version(exchange.safe_version), kms)
                )
                log("table_tidied", table=str(due.root))
            except Exception as error:
                # The table is unchanged; it is due again after further commits.
                observe("trouble", kind="upkeep", table=str(due.root), error=f"{type(error).__name__}: {error}"[:500])


def _sweep(exchange: Exchange) -> None:
    try:
        drop_delivered(exchange.places, settled_version(exchange.safe_version))
    except OSError as error:
        observe("trouble", kind="upkeep", error=f"{type(error).__name__}: {error}"[:500])


def _tidy(exchange: Exchange, sinks: SinkContext, settled: int, kms: KmsSettings, due: Due) -> None:
    try:
        tidy(due, sinks, exchange.keyring(kms), settled)
    finally:
        # The worker lives on and must give back the memory of the rewrite.
        pa.default_memory_pool().release_unused()
