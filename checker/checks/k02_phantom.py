"""K2: each stored row says which sent row it is, its hash agrees, and it is none that must not be there."""

import polars as pl

from checker import rows
from checker.findings import Findings
from checker.model import TABLE, Model


def check(model: Model) -> Findings:
    found = Findings("K2", "phantom")
    for reader in model.dump.readers:
        stored = model.stored(reader)
        _named(model, stored, found)
        _sealed(model, reader, found)
    return found


def _named(model: Model, stored: pl.DataFrame, found: Findings) -> None:
    """The row exists, its verdict is to accept it, and the platform's own columns name the same import and row."""
    sent = model.rows.select(
        "file", "row", "place", "accepted", "import", pl.col("nonce").alias("sent_nonce"), pl.col("k").alias("sent_k")
    )
    matched = stored.join(sent, on=["file", "row"], how="left")
    shown = [*TABLE, "w", "_import", "_row"]
    unknown = matched.filter(pl.col("sent_nonce").is_null() | (pl.col("sent_nonce") != pl.col("nonce")))
    found.none_of(unknown.select(shown), stored.height, "nobody sent it")
    refused = matched.filter(~pl.col("accepted"))
    found.none_of(refused.select(shown), stored.height, "a rejected row is stored")
    elsewhere = matched.filter(
        pl.col("sent_nonce").is_not_null()
        & (
            (pl.col("import") != pl.col("_import"))
            | (pl.col("place") != pl.col("_row"))
            | (pl.col("sent_k") != pl.col("k"))
        )
    )
    found.none_of(elsewhere.select(shown), stored.height, "its place is another than it says")


def _sealed(model: Model, reader: str, found: Findings) -> None:
    """The hash of a row is the hash of the cells that are stored beside it."""
    for (tenant, table), frame in model.dump.of_reader(reader).items():
        said = rows.named(frame).drop_nulls(["file", "row", "nonce"])
        for (file,), part in said.partition_by("file", as_dict=True).items():
            document = model.files.get(int(str(file)))
            if document is not None:
                sealed = pl.Series("sealed", rows.reseal(part, document["added"]))
                wrong = part.with_columns(sealed).filter(pl.col("h") != pl.col("sealed"))
                found.none_of(wrong.select("w", "h", "sealed"), part.height, f"another hash in {tenant}/{table}")
