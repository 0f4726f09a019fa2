"""K11: every row is judged by the schema in force at its import's place in the log; tables have the last shape."""

import polars as pl

from checker.findings import Findings
from checker.flavours import BY_SCHEMA
from checker.model import Model


def check(model: Model) -> Findings:
    found = Findings("K11", "schema")
    _counts(model, found)
    _sensitive_rows(model, found)
    _shapes(model, found)
    return found


def _counts(model: Model, found: Findings) -> None:
    totals = (
        model.rows.filter("certain")
        .group_by("import")
        .agg(pl.col("passes").sum().alias("accepted"), pl.len().alias("rows"))
    )
    for import_id, accepted, rows in totals.select("import", "accepted", "rows").iter_rows():
        said = model.imports[import_id].counts
        expected = (accepted, rows - accepted)
        actual = (said.get("accepted"), said.get("rejected"))
        found.that(actual == expected, f"{import_id}: accepted and rejected are {actual}, by its schema {expected}")


def _sensitive_rows(model: Model, found: Findings) -> None:
    """Rows that one revision takes and another refuses."""
    sensitive = model.rows.filter(pl.col("certain") & pl.col("flavour").is_in(list(BY_SCHEMA)))
    kept = model.dump.rejected.select("import", pl.col("row").alias("place"), pl.lit(True).alias("was_rejected"))
    judged = sensitive.join(kept, on=["import", "place"], how="left").with_columns(
        pl.col("was_rejected").fill_null(False)
    )
    wrong = judged.filter(pl.col("passes") == pl.col("was_rejected"))
    shown = ["import", "place", "flavour", "passes", "was_rejected"]
    found.none_of(wrong.select(shown), sensitive.height, "judged by another schema")


def _shapes(model: Model, found: Findings) -> None:
    for (tenant, table), frame in model.dump.of_reader(model.main_reader).items():
        last = model.revisions.last(tenant, table)
        declared = set(last.names) if last else set()
        columns = {name for name in frame.columns if not name.startswith("_")}
        # The last revision reaches the table with its first rows, or with its own control chunk.
        found.that(columns <= declared, f"{tenant}/{table} has columns nobody declared: {sorted(columns - declared)}")
        used = model.rows.filter((pl.col("tenant") == tenant) & (pl.col("table") == table) & pl.col("certain"))
        newest = used["seq"].max() if used.height else None
        if newest is not None:
            shape = model.revisions.at(tenant, table, int(str(newest)))
            lacking = set(shape.names if shape else ()) - columns
            found.that(not lacking, f"{tenant}/{table} lacks {sorted(lacking)}")
