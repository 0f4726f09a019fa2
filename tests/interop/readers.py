"""Who reads a table: each gives the rows of one version as texts, and counts the rows that have a value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa

from tests.interop import engine
from tests.interop.cells import row_texts
from tests.interop.engine import Engine
from tests.interop.filters import OF_DELTALAKE, OF_DUCKDB, OF_SPARK, Dialect
from tests.support.jar_sets import DELTA33_VERSION, DELTA_VERSION

DELTALAKE, POLARS, DUCKDB, SPARK35, SPARK4 = "deltalake", "polars", "DuckDB", "Spark 3.5", "Spark 4.2"
NAMES = (DELTALAKE, POLARS, DUCKDB, SPARK35, SPARK4)


@dataclass(frozen=True)
class Reader:
    read: Callable[[Path, int, Sequence[str]], list[str]]
    count: Callable[[Path, str, Any], int]
    at_once: int = 1


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
    def readers(self) -> Mapping[str, Reader]:
        return {
            DELTALAKE: Reader(read_by_deltalake, count_by_deltalake),
            POLARS: Reader(read_by_polars, count_by_polars),
            DUCKDB: _asking(self._open[DUCKDB], OF_DUCKDB, at_once=1),
            SPARK35: _asking(self._open[SPARK35], OF_SPARK, at_once=1),
            # It writes, too, and so has the most to do.
            SPARK4: _asking(self._open[SPARK4], OF_SPARK, at_once=2),
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


def _asking(process: Engine, dialect: Dialect, *, at_once: int) -> Reader:
    def read(root: Path, version: int, columns: Sequence[str]) -> list[str]:
        rows: list[str] = process.ask("read", root=str(root), version=version, columns=list(columns))
        return rows

    def count(root: Path, column: str, value: Any) -> int:
        return int(process.ask("count", root=str(root), condition=dialect.condition(column, value)))

    return Reader(read, count, at_once)


def read_by_deltalake(root: Path, version: int, columns: Sequence[str]) -> list[str]:
    rows = pa.table(deltalake.DeltaTable(str(root), version=version).scan().read_all()).select(list(columns))
    return row_texts(tuple(row.values()) for row in rows.to_pylist())


def count_by_deltalake(root: Path, column: str, value: Any) -> int:
    query = f"select count(*) as n from t where {OF_DELTALAKE.condition(column, value)}"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root))).execute(query).read_all()
    return int(pa.table(found)["n"][0].as_py())


def read_by_polars(root: Path, version: int, columns: Sequence[str]) -> list[str]:
    return row_texts(pl.scan_delta(str(root), version=version).select(*columns).collect().rows())


def count_by_polars(root: Path, column: str, value: Any) -> int:
    wanted = pl.col(column).is_null() if value is None else pl.col(column) == value
    return int(pl.scan_delta(str(root)).filter(wanted).select(pl.len()).collect().item())
