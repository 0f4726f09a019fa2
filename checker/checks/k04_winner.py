"""K4: the stored row of a key is the model's winner, in every reader; versions rise with the places in the log."""

import json

import polars as pl

from checker.findings import Findings
from checker.model import TABLE, Model
from checker.oplog import RAW_INPUT, TAIL, topic_of


def check(model: Model) -> Findings:
    found = Findings("K4", "winner")
    for reader in model.dump.readers:
        _winners(model, model.stored(reader), found)
    _same_in_all(model, found)
    _versions(model, found)
    _chunk_versions(model, found)
    return found


def _winners(model: Model, stored: pl.DataFrame, found: Findings) -> None:
    """Allowed is the newest certain row, or any row newer than it whose import nobody can be sure of."""
    keyed = model.rows.filter("keyed").select(TABLE).unique()
    here = stored.join(keyed, on=TABLE)
    best = model.winners.select(
        *TABLE, "k", pl.col("seq").alias("best_seq"), pl.col("place").alias("best_row"), "deletes"
    )
    compared = here.join(best, on=[*TABLE, "k"], how="left")
    is_best = (pl.col("seq") == pl.col("best_seq")) & (pl.col("_row") == pl.col("best_row")) & ~pl.col("deletes")
    newer = pl.col("best_seq").is_null() | (pl.col("seq") > pl.col("best_seq"))
    allowed = is_best | (newer & ~pl.col("certain").fill_null(False))
    shown = [*TABLE, "k", "seq", "_row", "best_seq", "best_row", "_import"]
    losers = compared.filter(~allowed.fill_null(False)).join(model.given, on=[*TABLE, "k"], how="anti")
    found.none_of(losers.select(shown), here.height, "not the winner")
    floored = stored.join(model.floors, on=TABLE).filter(pl.col("seq") < pl.col("floor"))
    found.none_of(floored.select(*TABLE, "k", "seq", "floor"), stored.height, "a truncated row is back")


def _same_in_all(model: Model, found: Findings) -> None:
    """Every reader of a table reads the same rows."""
    for tenant, table in model.dump.of_reader(model.main_reader):
        digests = {}
        for reader in model.dump.readers:
            frame = model.dump.stored.get((reader, tenant, table))
            columns = ["k", "_version", "_row", "_import", "h"]
            digests[reader] = None if frame is None else _digest(frame.select(columns).sort(columns))
        found.that(len(set(digests.values())) == 1, f"readers of {tenant}/{table} disagree: {digests}")


def _digest(frame: pl.DataFrame) -> str:
    return f"{frame.height} rows, {frame.hash_rows(seed=1).sum()}"


def _versions(model: Model, found: Findings) -> None:
    """An import admitted later has greater versions, and no version belongs to two imports."""
    stored = model.table_rows.drop_nulls("seq")
    ranges = stored.group_by([*TABLE, "seq"]).agg(
        pl.col("_version").min().alias("low"), pl.col("_version").max().alias("high")
    )
    ordered = ranges.sort(*TABLE, "seq").with_columns(pl.col("high").cum_max().shift(1).over(TABLE).alias("before"))
    found.none_of(ordered.filter(pl.col("low") <= pl.col("before")), ordered.height, "versions against the log's order")


def _chunk_versions(model: Model, found: Findings) -> None:
    """A row has the version that its chunk was stamped with."""
    stamps = topic_of(model.dump.records, TAIL, RAW_INPUT)["text"].to_list()
    chunks = [json.loads(text) for text in stamps if text]
    schema = {"_import": pl.String, "first_row": pl.Int64, "version": pl.Int64}
    named = [
        (c["import_id"], c["first_row"], c["version"])
        for c in chunks
        if "import_id" in c and c.get("kind", "rows") == "rows"
    ]
    frame = pl.DataFrame(named, schema=schema, orient="row").unique(["_import", "first_row"]).sort("first_row")
    stored = model.table_rows.filter(pl.col("_import").is_in(frame["_import"].unique().to_list())).sort("_row")
    joined = stored.join_asof(frame, left_on="_row", right_on="first_row", by="_import", check_sortedness=False)
    wrong = joined.filter((pl.col("version") != pl.col("_version")).fill_null(True))
    found.none_of(
        wrong.select(*TABLE, "_import", "_row", "_version", "version"), stored.height, "not its chunk's version"
    )
