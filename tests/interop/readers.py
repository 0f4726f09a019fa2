"""Who reads a table: each gives the rows of one version as texts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa

from tests.interop import engine
from tests.interop.cells import row_texts
from tests.interop.engine import Engine
from tests.support.jar_sets import DELTA33_VERSION, DELTA_VERSION

Read = Callable[[Path, int, Sequence[str]], list[str]]
DELTALAKE, POLARS, DUCKDB, SPARK35, SPARK4 = "deltalake", "polars", "DuckDB", "Spark 3.5", "Spark 4.2"
NAMES = (DELTALAKE, POLARS, DUCKDB, SPARK35, SPARK4)


class Engines:
    """The processes of a run. Use it as a context."""

    def __init__(self, folder: Path) -> None:
        self._open = {
            SPARK4: engine.spark4(folder),
            SPARK35: engine.spark35(folder),
            DUCKDB: engine.duckdb(folder),
        }

    def __enter__(self) -> "Engines":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open.values():
            each.close()

    @property
    def spark(self) -> Engine:
        return self._open[SPARK4]

    @property
    def readers(self) -> Mapping[str, Read]:
        return {
            DELTALAKE: read_by_deltalake,
            POLARS: read_by_polars,
            **{name: _asking(self._open[name]) for name in (DUCKDB, SPARK35, SPARK4)},
        }

    @property
    def versions(self) -> dict[str, str]:
        return {
            DELTALAKE: deltalake.__version__,
            POLARS: pl.__version__,
            DUCKDB: self._open[DUCKDB].version,
            SPARK35: f"{self._open[SPARK35].version}, Delta {DELTA33_VERSION}",
            SPARK4: f"{self._open[SPARK4].version}, Delta {DELTA_VERSION}",
        }


def _asking(process: Engine) -> Read:
    return lambda root, version, columns: process.ask("read", root=str(root), version=version, columns=list(columns))


def read_by_deltalake(root: Path, version: int, columns: Sequence[str]) -> list[str]:
    rows = pa.table(deltalake.DeltaTable(str(root), version=version).scan().read_all()).select(list(columns))
    return row_texts(tuple(row.values()) for row in rows.to_pylist())


def read_by_polars(root: Path, version: int, columns: Sequence[str]) -> list[str]:
    return row_texts(pl.scan_delta(str(root), version=version).select(*columns).collect().rows())
