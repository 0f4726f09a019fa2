"""Rows as the bytes of a CSV or JSON Lines file, each spoiled as its flavour says: rows in, bytes out."""

from collections.abc import Sequence

import polars as pl

from checker import flavours as f
from checker.rows import added_value, base_of, cells
from checker.shapes import FIRST

QUOTED = ("w", "v2")
LAST = FIRST[-1][0]


def render(rows: pl.DataFrame, canary: str, file_format: str, added: Sequence[str], early: str | None) -> bytes:
    """The file that holds the rows, with the first columns and those of `added`."""
    frame = cells(rows, canary, added).with_columns(rows["flavour"])
    if file_format == "csv":
        return _csv(frame, added)
    if early is not None:
        frame = frame.with_columns(pl.Series("early", added_value(base_of(rows), early)))
    return _jsonl(frame, added, early)


def render_keys(keys: pl.Series, file_format: str) -> bytes:
    """A file of keys to delete."""
    if file_format == "csv":
        return b"k\n" + _joined(keys.alias("k").to_frame(), pl.col("k").cast(pl.String))
    return _joined(keys.alias("k").to_frame(), pl.concat_str([pl.lit('{"k":'), pl.col("k"), pl.lit("}")]))


def _is(flavour: str) -> pl.Expr:
    return pl.col("flavour") == flavour


def _csv(frame: pl.DataFrame, added: Sequence[str]) -> bytes:
    spoiled = frame.with_columns(
        k=pl.when(_is(f.NO_KEY)).then(pl.lit("")).otherwise(pl.col("k").cast(pl.String)),
        v1=pl.when(_is(f.NOT_NUMBER)).then(pl.format("x{}", "v1")).otherwise(pl.col("v1").cast(pl.String)),
    )
    names = [name for name, _ in FIRST] + list(added)
    whole = pl.concat_str([pl.col(name).cast(pl.String) for name in names], separator=",")
    without_last = pl.concat_str([pl.col(name).cast(pl.String) for name in names[:-1]], separator=",")
    line = pl.when(_is(f.SHORT)).then(without_last).when(_is(f.SURPLUS)).then(whole + ",surplus").otherwise(whole)
    return ",".join(names).encode() + b"\n" + _joined(spoiled, line)


def _jsonl(frame: pl.DataFrame, added: Sequence[str], early: str | None) -> bytes:
    """`h` comes last, so that a row can do without it."""
    names = [name for name, _ in FIRST if name != LAST] + list(added)
    members = [_member(name) for name in names]
    head = pl.concat_str([pl.lit("{"), pl.concat_str(members, separator=",")])
    whole = pl.concat_str([head, pl.format(',"h":{}', "h")])
    early_field = whole if early is None else pl.concat_str([whole, pl.format(f',"{early}":{{}}', "early")])
    line = (
        pl.when(_is(f.BROKEN)).then(head)
        .when(_is(f.SHORT)).then(head + "}")
        .when(_is(f.SURPLUS)).then(whole + f',"{f.UNKNOWN_FIELD}":1}}')
        .when(_is(f.EARLY)).then(early_field + "}")
        .when(_is(f.DELETE)).then(pl.concat_str([pl.lit('{"k":'), pl.col("k"), pl.lit(',"_deleted":true}')]))
        .otherwise(whole + "}")
    )  # fmt: skip
    return _joined(frame, line)


def _member(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String)
    if name in QUOTED:
        value = pl.concat_str([pl.lit('"'), text, pl.lit('"')])
    elif name == "k":
        value = pl.when(_is(f.NO_KEY)).then(pl.lit("null")).otherwise(text)
    elif name == "v1":
        value = pl.when(_is(f.NOT_NUMBER)).then(pl.concat_str([pl.lit('"x'), text, pl.lit('"')])).otherwise(text)
    else:
        value = text
    return pl.concat_str([pl.lit(f'"{name}":'), value])


def _joined(frame: pl.DataFrame, line: pl.Expr) -> bytes:
    return "\n".join([*frame.select(line.alias("line"))["line"].to_list(), ""]).encode()
