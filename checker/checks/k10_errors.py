"""K10: the rejected rows that are kept are those the model rejects, with the right reasons; pages repeat themselves."""

import polars as pl

from checker import flavours
from checker.findings import Findings
from checker.model import Model


def check(model: Model) -> Findings:
    found = Findings("K10", "errors")
    expected = _expected(model)
    kept = model.dump.rejected.with_columns(pl.col("reasons").list.sort().list.join(" ").alias("said"))
    certain = [imported.id for imported in model.imports.values() if imported.is_certain]
    _same_rows(expected.filter(pl.col("import").is_in(certain)), kept.filter(pl.col("import").is_in(certain)), found)
    _no_others(expected, kept, found)
    _pages(model, kept, found)
    return found


def _expected(model: Model) -> pl.DataFrame:
    """The rows to reject and the reason of each."""
    rejected = model.rows.filter(~pl.col("passes")).select("file", "import", pl.col("place").alias("row"), "flavour")
    keyless = model.dump.run.get("keyless", [])
    reasons = [
        (file["file"], flavour, flavours.reason(flavour, file["format"], file.get("early"), keyed=is_keyed))
        for file in model.dump.files
        for is_keyed in ([file["tenant"], file["table"]] not in keyless,)
        for flavour in flavours.IN_FORMAT[file["format"]]
    ]
    schema = {"file": pl.Int64, "flavour": pl.String, "reason": pl.String}
    return rejected.join(pl.DataFrame(reasons, schema=schema, orient="row"), on=["file", "flavour"], how="left")


def _same_rows(expected: pl.DataFrame, kept: pl.DataFrame, found: Findings) -> None:
    identity = ["import", "row"]
    missing = expected.join(kept, on=identity, how="anti")
    found.none_of(missing.select("import", "row", "flavour"), expected.height, "a rejected row is not kept")
    both = expected.join(kept.select("import", "row", "said"), on=identity)
    found.none_of(both.filter(pl.col("reason") != pl.col("said")), both.height, "another reason")


def _no_others(expected: pl.DataFrame, kept: pl.DataFrame, found: Findings) -> None:
    surplus = kept.join(expected, on=["import", "row"], how="anti")
    found.none_of(
        surplus.select("tenant", "table", "import", "row", "said"), kept.height, "a good row is kept as rejected"
    )


def _pages(model: Model, kept: pl.DataFrame, found: Findings) -> None:
    """Pages hold what is kept, in the order of the file, and a second reading repeats the first."""
    by_import: dict[str, list[list[int]]] = {}
    for page in model.dump.pages:
        by_import.setdefault(page["import"], []).append(page["rows"])
    for import_id, readings in by_import.items():
        stored = kept.filter(pl.col("import") == import_id).sort("row")["row"].to_list()
        for reading in readings:
            found.that(reading == readings[0], f"pages of {import_id} come in another order the second time")
            found.that(reading == stored, f"pages of {import_id} show {len(reading)} rows, {len(stored)} are kept")
