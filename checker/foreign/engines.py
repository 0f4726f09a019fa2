"""The other engines of a run, by name."""

from collections.abc import Sequence
from pathlib import Path

from checker.foreign.deltalake_writer import DeltalakeWriter
from checker.foreign.rounds import ForeignWriter
from checker.foreign.spark_writer import SparkWriter

DELTALAKE, SPARK = "deltalake", "spark"
ENGINES = (DELTALAKE, SPARK)


def open_writers(names: Sequence[str], folder: Path) -> list[ForeignWriter]:
    """`folder` takes what Spark logs."""
    return [SparkWriter(folder / "spark.log") if name == SPARK else DeltalakeWriter() for name in names]
