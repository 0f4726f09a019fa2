"""Rows that describe themselves: (file, row, key, nonce, flavour) in; every cell of the row, derived from them, out.

`w` names the row and its tenant's canary, every other cell follows from `w`, and `h` from all of them: a cell of another row,
another version or another tenant cannot go unseen. Nothing is computed row by row."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from checker.flavours import WIDE

Words = npt.NDArray[np.uint64]

SCHEMA = pl.Schema({"file": pl.Int64, "row": pl.Int64, "k": pl.Int64, "nonce": pl.Int64, "flavour": pl.String})
WIDE_BY = 1 << 40
_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(words: Words) -> Words:
    """Spreads every bit of a word over all of it (splitmix64)."""
    spread = words + _STEP
    spread = (spread ^ (spread >> np.uint64(30))) * _FIRST
    spread = (spread ^ (spread >> np.uint64(27))) * _SECOND
    spread ^= spread >> np.uint64(31)
    return spread


def _words(column: pl.Series) -> Words:
    return column.to_numpy().astype(np.int64).view(np.uint64)


def base_of(rows: pl.DataFrame) -> Words:
    return mix(mix(mix(_words(rows["file"])) ^ _words(rows["row"])) ^ _words(rows["nonce"]))


def _long(words: Words) -> npt.NDArray[np.int64]:
    return (words >> np.uint64(1)).astype(np.int64)


def cells(rows: pl.DataFrame, canary: str, added: Sequence[str]) -> pl.DataFrame:
    """The cells of rows as their file has them: the first columns, then those of `added` that the file holds."""
    base = base_of(rows)
    v1 = (mix(base + np.uint64(1)) >> np.uint64(33)).astype(np.int64)
    v1 += np.where((rows["flavour"] == WIDE).to_numpy(), WIDE_BY, 0)
    v2 = mix(base + np.uint64(2))
    v3 = (mix(base + np.uint64(3)) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    more = {name: added_value(base, name) for name in added}
    whole = seal(rows["k"].to_numpy(), base, [v1, _long(v2), v3.view(np.int64), *more.values()])
    name = pl.format("{}|{}|{}|{}", pl.lit(canary), "file", "row", "nonce")
    first = {"v1": pl.Series(v1), "v2": hexadecimal(_long(v2)), "v3": pl.Series(v3), "h": pl.Series(whole)}
    later = {name: pl.Series(values) for name, values in more.items()}
    return rows.select("k", name.alias("w")).with_columns(**first, **later)


def added_value(base: Words, name: str) -> npt.NDArray[np.int64]:
    return _long(mix(base + np.uint64(100 + int(name[1:]))))


def seal(keys: npt.NDArray[np.int64], base: Words, values: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The hash over a row's key, name and values."""
    state = mix(keys.astype(np.int64).view(np.uint64) ^ base)
    for value in values:
        state = mix(state ^ value.view(np.uint64))
    return _long(state)


def hexadecimal(values: npt.NDArray[np.int64]) -> pl.Series:
    """Sixteen hexadecimal digits each."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    big = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    text = np.empty((len(values), 16), np.uint8)
    text[:, 0::2], text[:, 1::2] = digits[big >> 4], digits[big & 15]
    return pl.Series(text.reshape(-1).view("S16").astype("U16"), dtype=pl.String)


def reseal(stored: pl.DataFrame, added: Sequence[str]) -> npt.NDArray[np.int64]:
    """`h` computed from the cells as they are stored; the columns file, row and nonce come from `w`."""
    v2 = stored["v2"].str.to_integer(base=16, strict=False).fill_null(0).to_numpy().astype(np.int64)
    v1 = stored["v1"].cast(pl.Int64).to_numpy()
    v3 = stored["v3"].to_numpy().astype(np.float64).view(np.int64)
    more = [stored[name].fill_null(0).to_numpy().astype(np.int64) for name in added]
    return seal(stored["k"].to_numpy(), base_of(stored), [v1, v2, v3, *more])


NAMED = r"^([^|]+)\|(\d+)\|(\d+)\|(\d+)$"


def named(stored: pl.DataFrame) -> pl.DataFrame:
    """Stored rows with what their `w` says: canary, file, row and nonce; null where it says nothing."""
    parts = pl.col("w").str.extract_groups(NAMED).struct.rename_fields(["canary", "file", "row", "nonce"])
    numbers = [pl.col(name).cast(pl.Int64, strict=False) for name in ("file", "row", "nonce")]
    return stored.with_columns(parts.alias("_w")).unnest("_w").with_columns(numbers)
