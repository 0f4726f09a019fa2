"""K1: each row that must be there is the winner of its key, or beaten by a newer one; without a key it is there once."""

import polars as pl

from checker.findings import Findings
from checker.imported import ALL_REJECTED
from checker.model import TABLE, Model


def check(model: Model) -> Findings:
    found = Findings("K1", "lost")
    for reader in model.dump.readers:
        stored = model.stored(reader)
        _keyed(model, stored, found)
        _keyless(model, stored, found)
        _partial(model, stored, found)
    _acknowledged(model, found)
    return found


def _keyed(model: Model, stored: pl.DataFrame, found: Findings) -> None:
    certain = model.above_floor.filter(pl.col("keyed") & pl.col("certain"))
    present = stored.select(*TABLE, "k", pl.col("seq").alias("has_seq"), pl.col("_row").alias("has_row"))
    missing = model.winners.filter(~pl.col("deletes")).join(present, on=[*TABLE, "k"], how="left").filter(
        pl.col("has_seq").is_null()
        | (pl.col("has_seq") < pl.col("seq"))
        | ((pl.col("has_seq") == pl.col("seq")) & (pl.col("has_row") < pl.col("place")))
    )  # fmt: skip
    may = _newer_deletes(model)
    # Of a key that another engine deleted, nothing or an older row that was delivered again may be there.
    missing = missing.join(model.given, on=[*TABLE, "k"], how="anti")
    unexcused = missing.join(may, on=[*TABLE, "k"], how="left").filter(
        pl.col("may_seq").is_null() | (pl.col("may_seq") < pl.col("seq")) | pl.col("has_seq").is_not_null()
    )
    found.none_of(unexcused.select(*TABLE, "k", "seq", "place", "has_seq", "has_row"), certain.height, "lost")


def _newer_deletes(model: Model) -> pl.DataFrame:
    """Deletes that nobody can be sure of: they excuse a key that is not there."""
    unsure = model.above_floor.filter(pl.col("keyed") & ~pl.col("certain") & pl.col("deletes"))
    return unsure.group_by([*TABLE, "k"]).agg(pl.col("seq").max().alias("may_seq"))


def _keyless(model: Model, stored: pl.DataFrame, found: Findings) -> None:
    certain = model.above_floor.filter(~pl.col("keyed") & pl.col("certain"))
    present = stored.select(pl.col("_import").alias("import"), pl.col("_row").alias("place"))
    lost = certain.join(present, on=["import", "place"], how="anti")
    found.none_of(lost.select(*TABLE, "import", "place", "k"), certain.height, "lost from a table without key")


def _partial(model: Model, stored: pl.DataFrame, found: Findings) -> None:
    """Of an import that was stopped a table without key holds as many rows as the import says were accepted."""
    unsure = model.above_floor.filter(~pl.col("keyed") & ~pl.col("certain"))["import"].unique()
    held = dict(stored.group_by("_import").len().iter_rows())
    for imported in (model.imports[import_id] for import_id in unsure):
        if imported.is_over:
            said = imported.counts.get("accepted", 0)
            found.that(
                held.get(imported.id, 0) == said,
                f"{imported.id}: {held.get(imported.id, 0)} rows held, {said} accepted",
            )


def _acknowledged(model: Model, found: Findings) -> None:
    """Whoever sent all bytes and did not cancel has a completed import, or one whose rows were all bad."""
    asked = [line["path"] for line in model.dump.history if line["f"] == "cancel"]
    cancelled = {path.split("/")[3] for path in asked}
    for imported in model.imports.values():
        if imported.id in model.chunks and imported.id not in cancelled and imported.is_over:
            code = (imported.document.get("error") or {}).get("code")
            well = imported.state == "completed" or code == ALL_REJECTED
            found.that(well, f"import {imported.id} was received whole and is {imported.state} ({code})")
