"""Upkeep of tables as Spark tasks beside the queries: the driver only decides what is due."""

import threading
import time
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from millrace.exchange.mailboxes import Exchange
from millrace.observe import log, observe
from millrace.settings import KmsSettings, Settings
from millrace.sink.context import SinkContext
from millrace.sink.delta.upkeep import VACUUM_SECONDS, Due, Upkeep, drop_delivered, settled_version, tidy, vacuum_idle

LOOK_SECONDS = 5.0
POOL = "upkeep"


def keep_tidy(spark: SparkSession, exchange: Exchange, sinks: SinkContext, upkeep: Upkeep, settings: Settings) -> None:
    """Starts the thread that tidies what is due, one table at a time. It ends with the process."""
    threading.Thread(target=_run, args=(spark, exchange, sinks, upkeep, settings), name="upkeep", daemon=True).start()


def _run(spark: SparkSession, exchange: Exchange, sinks: SinkContext, upkeep: Upkeep, settings: Settings) -> None:
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", POOL)
    swept = 0.0
    while True:
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - swept > VACUUM_SECONDS:
            swept = time.monotonic()
            _sweep(exchange, settings.kms)
        for due in upkeep.take_due():
            try:
                settled, share = settled_version(exchange.safe_version), settings.spark.upkeep_share
                context.parallelize([due], 1).foreach(partial(_tidy, exchange, sinks, settled, settings.kms, share))
                log("table_tidied", table=str(due.root))
            except Exception as error:
                # The table is unchanged; it is due again after further commits.
                observe("trouble", kind="upkeep", table=str(due.root), error=f"{type(error).__name__}: {error}"[:500])


def _sweep(exchange: Exchange, kms: KmsSettings) -> None:
    try:
        drop_delivered(exchange.places, settled_version(exchange.safe_version))
        vacuum_idle(exchange.places, exchange.keyring(kms))
    except OSError as error:
        observe("trouble", kind="upkeep", error=f"{type(error).__name__}: {error}"[:500])


def _tidy(exchange: Exchange, sinks: SinkContext, settled: int, kms: KmsSettings, share: float, due: Due) -> None:
    try:
        tidy(due, sinks, exchange.keyring(kms), settled, share)
    finally:
        # The worker lives on and must give back the memory of the rewrite.
        pa.default_memory_pool().release_unused()
