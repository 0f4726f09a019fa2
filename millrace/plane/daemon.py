"""The process that Spark forks its Python workers from: everything a worker needs is imported once, before the fork."""

import gc

import polars  # noqa: F401
import pyarrow.csv
import pyarrow.parquet  # noqa: F401
from pyspark import daemon
from pyspark.sql import pandas  # noqa: F401

from millrace.plane import task  # noqa: F401

if __name__ == "__main__":
    # A worker collects garbage after every task. Objects from before the fork are no garbage: the collector skips them.
    gc.freeze()
    daemon.manager()
