"""K15: what had ended before a process was killed is still there at the end, or beaten by something newer.

Killing a process shows that what is durable survives the death of processes (class D1). The system's page cache lives on,
so surviving a power cut (class D2) is not shown, and for one broker on one machine it is not promised."""

import polars as pl

from checker.findings import Findings
from checker.model import TABLE, Model, newest
from checker.terminal import is_terminal


def check(model: Model) -> Findings:
    found = Findings(
        "K15", "durability", note="D1 (death of processes) shown; D2 (power cut) neither shown nor promised here"
    )
    kills = [fault["t_wall"] for fault in model.dump.nemesis if fault.get("signal") == "KILL"]
    if not kills:
        return found
    ended = {
        heard["event"]["subject"]
        for heard in model.dump.heard
        if is_terminal(heard["event"]) and heard["t_wall"] < max(kills)
    }
    rows = model.above_floor.filter(pl.col("import").is_in(list(ended)) & pl.col("certain"))
    stored = model.table_rows
    keyed = newest(rows.filter("keyed"))
    there = stored.select(*TABLE, "k", pl.col("seq").alias("has"))
    deleted = model.rows.filter("deletes").select(*TABLE, "k").unique()
    lost = keyed.filter(~pl.col("deletes")).join(there, on=[*TABLE, "k"], how="left").filter(
        pl.col("has").is_null() | (pl.col("has") < pl.col("seq"))
    ).join(deleted, on=[*TABLE, "k"], how="anti").join(model.given, on=[*TABLE, "k"], how="anti")  # fmt: skip
    found.none_of(lost.select(*TABLE, "k", "import"), rows.filter("keyed").height, "ended before a kill, and lost")
    keyless = rows.filter(~pl.col("keyed"))
    present = stored.select(pl.col("_import").alias("import"), pl.col("_row").alias("place"))
    gone = keyless.join(present, on=["import", "place"], how="anti")
    found.none_of(gone.select(*TABLE, "import", "place"), keyless.height, "ended before a kill, and lost")
    return found
