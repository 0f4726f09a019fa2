"""K13: whoever reads a table again sees no key go back to an older version, and none vanish without a delete."""

from collections import defaultdict
from itertools import pairwise

import polars as pl

from checker.checks.k17_alone import DAMAGE
from checker.dump import Document
from checker.findings import Findings
from checker.model import Model


def check(model: Model) -> Findings:
    found = Findings("K13", "monotone reads")
    keyless = model.dump.run.get("keyless", [])
    by_table: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for snapshot in model.dump.snapshots:
        place = f"{snapshot['tenant']}/{snapshot['table']}"
        is_readable = "error" not in snapshot or _was_damaged(model, place, snapshot)
        found.that(is_readable, f"{place} cannot be read: {snapshot.get('error')}")
        if "error" not in snapshot and [snapshot["tenant"], snapshot["table"]] not in keyless:
            by_table[snapshot["tenant"], snapshot["table"]].append(snapshot)
    frames = model.dump.seen_rows.partition_by("snapshot", as_dict=True)
    for (tenant, table), readings in by_table.items():
        vanishing = _may_vanish(model, tenant, table)
        given = model.given.filter((pl.col("tenant") == tenant) & (pl.col("table") == table)).select("k")
        ordered = sorted(readings, key=lambda each: each["begun"])
        for before, after in pairwise(ordered):
            if before["done"] <= after["begun"]:
                pair = [frames.get((each["snapshot"],), model.dump.seen_rows.clear()) for each in (before, after)]
                what = f"{tenant}/{table} reading {after['snapshot']}"
                _never_back(pair[0], pair[1], vanishing, given, what, found)
    return found


def _was_damaged(model: Model, place: str, snapshot: Document) -> bool:
    """Whether the soak itself had damaged the table while it was read."""
    damages = [fault for fault in model.dump.nemesis if fault["signal"] == DAMAGE and fault["target"] == place]
    return any(fault["t_mono"] <= snapshot["done"] and snapshot["begun"] <= fault["healed"] for fault in damages)


def _may_vanish(model: Model, tenant: str, table: str) -> pl.DataFrame:
    """Keys that some op of the run deletes; all of them (a null key) if a truncate is in the log."""
    mine = model.rows.filter((pl.col("tenant") == tenant) & (pl.col("table") == table))
    deleted = mine.filter("deletes").select("k").unique()
    floor = model.floors.filter((pl.col("tenant") == tenant) & (pl.col("table") == table))
    return mine.select("k").unique() if floor.height else deleted


def _never_back(
    before: pl.DataFrame, after: pl.DataFrame, vanishing: pl.DataFrame, given: pl.DataFrame, what: str, found: Findings
) -> None:
    both = before.join(after, on="k", how="left", suffix="_then")
    order = pl.struct("_version", "_row")
    back = both.join(given, on="k", how="anti").filter(
        (pl.col("_version_then") < pl.col("_version"))
        | ((pl.col("_version_then") == pl.col("_version")) & (pl.col("_row_then") < pl.col("_row")))
    )
    found.none_of(back.select("k", order, "_version_then"), both.height, f"{what}: an older version")
    gone = both.filter(pl.col("_version_then").is_null()).join(vanishing, on="k", how="anti")
    gone = gone.join(given, on="k", how="anti")
    found.none_of(gone.select("k", "_version"), both.height, f"{what}: a key vanished")
