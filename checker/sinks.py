"""Direct reads of the tables, by readers that have nothing to do with the platform: polars, and delta-rs."""

from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from checker.foreign.operations import is_ours

READERS = ("delta-rs", "polars")
PLACE = ["k", "_version", "_import", "_row"]


def is_there(location: Path) -> bool:
    return (location / "_delta_log").exists()


def read_all(location: Path, reader: str) -> pl.DataFrame:
    if reader == "polars":
        return pl.scan_delta(str(location)).collect()
    return pl.DataFrame(DeltaTable(str(location)).scan())


def wear(location: Path) -> dict[str, int]:
    """What a table costs its readers: live data files, and entries in its log."""
    return {
        "files": len(DeltaTable(str(location)).file_uris()),
        "log": len(list((location / "_delta_log").glob("*.json"))),
    }


def read_places(location: Path, imports: list[str] | None) -> pl.DataFrame:
    """Which imported row each key shows now; with `imports`, only the rows of those."""
    wanted = pl.scan_delta(str(location)).select(PLACE).filter(~is_ours())
    return (wanted if imports is None else wanted.filter(pl.col("_import").is_in(imports))).collect()


def read_rejected(location: Path, tenant: str, table: str) -> pl.DataFrame:
    """The error store of a table: each rejected row with its reasons as column:rule."""
    spoken = pl.element().struct.field("column").fill_null("") + ":" + pl.element().struct.field("rule")
    return pl.scan_delta(str(location)).select(
        pl.lit(tenant).alias("tenant"), pl.lit(table).alias("table"), pl.col("_import").alias("import"), "row",
        pl.col("chunk").cast(pl.Int64), "raw", pl.col("reasons").list.eval(spoken),
    ).collect()  # fmt: skip
