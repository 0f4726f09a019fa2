"""Damages in what other engines wrote."""

import polars as pl

from checker.dump import Dump
from checker.foreign.operations import FIRST_KEY
from checker.selftest.good_run import VAULT
from checker.selftest.planting import damage, restore


@damage("a row of another engine is gone", "K19")
def _(dump: Dump) -> None:
    restore(dump, VAULT, lambda frame: frame.filter(pl.col("k") != FIRST_KEY))


@damage("a row that another engine deleted is back", "K19")
def _(dump: Dump) -> None:
    back = {"k": [FIRST_KEY + 1], "w": ["foreign 1 1"]}
    restore(dump, VAULT, lambda frame: pl.concat([frame, pl.DataFrame(back)], how="diagonal_relaxed"))


@damage("a change of another engine is undone", "K19")
def _(dump: Dump) -> None:
    old = pl.when(pl.col("k") == FIRST_KEY).then(pl.lit("foreign 1 0")).otherwise("w").alias("w")
    restore(dump, VAULT, lambda frame: frame.with_columns(old))


@damage("a row of another engine was gone for a while", "K19")
def _(dump: Dump) -> None:
    operation = next(said for said in dump.foreign if said["operation"] == "update")
    operation["found"] = {}


@damage("a table could not be read after another engine wrote it", "K19")
def _(dump: Dump) -> None:
    del dump.foreign[0]["found"]
    dump.foreign[0]["unreadable"] = "DeltaError: a file is gone"
