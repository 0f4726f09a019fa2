"""What a table's log says about the columns of a data file: the footer that was written in, Delta's statistics as JSON out.
Readers leave out files by them, so a bound may be too wide, but never too narrow.

Bounds are rounded outwards where Delta's JSON cannot hold them: timestamps to milliseconds, long texts to 32 characters,
decimals to 15 digits. Columns without an order that all readers share have none: booleans, bytes, lists and maps."""

import math
from collections.abc import Collection, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# As many as Delta's readers look at, unless the table says otherwise.
MOST_COLUMNS = 32
MOST_CHARACTERS = 32
# Some readers take numbers with a fraction for doubles. These keep so many digits.
DECIMAL_DIGITS = 15
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)
_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_FIRST_DAY, _LAST_DAY = (int(np.datetime64(day, "D").astype(np.int64)) for day in ("0001-01-01", "9999-12-31"))

Bounds = tuple[Any, Any]


def file_statistics(footer: pq.FileMetaData, finite: Collection[str] = ()) -> str:
    """`finite` are the columns of floating-point numbers that have no NaN and no infinity: footers do not tell."""
    found = _FoundStatistics(footer, finite)
    leaf = 0
    for field in footer.schema.to_arrow_schema():
        if leaf >= MOST_COLUMNS:
            break
        leaf = found.add(field, leaf, (field.name,))
    known = {"minValues": found.least, "maxValues": found.greatest, "nullCount": found.nulls}
    told = {"numRecords": footer.num_rows, "tightBounds": True}
    return orjson.dumps({**told, **{name: values for name, values in known.items() if values}}).decode()


def finite_columns(table: pa.Table) -> frozenset[str]:
    """The columns of floating-point numbers whose sum is finite: one NaN or infinity would show in it."""
    floating = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    return frozenset(name for name in floating[:MOST_COLUMNS] if _is_finite(table[name]))


def _is_finite(column: pa.ChunkedArray) -> bool:
    total = pc.sum(column).as_py()
    return total is None or math.isfinite(total)


class _FoundStatistics:
    def __init__(self, footer: pq.FileMetaData, finite: Collection[str]) -> None:
        self._groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        self._finite = finite
        self.least: dict[str, Any] = {}
        self.greatest: dict[str, Any] = {}
        self.nulls: dict[str, Any] = {}

    def add(self, field: pa.Field, leaf: int, path: tuple[str, ...]) -> int:
        """The number of the next leaf. Fields of a struct are in an object of their own, as Delta wants it."""
        if pa.types.is_struct(field.type):
            for index in range(field.type.num_fields):
                part = field.type.field(index)
                leaf = self.add(part, leaf, (*path, part.name))
        elif pa.types.is_nested(field.type):
            leaf += _leaves(field.type)
        else:
            if leaf < MOST_COLUMNS:
                self._add_leaf(field.type, leaf, path)
            leaf += 1
        return leaf

    def _add_leaf(self, kind: pa.DataType, leaf: int, path: tuple[str, ...]) -> None:
        chunks = [group.column(leaf) for group in self._groups]
        known = [chunk.statistics for chunk in chunks]
        if not all(told is not None and told.has_null_count for told in known):
            return
        _put(self.nulls, path, sum(told.null_count for told in known))
        told = [told for told, chunk in zip(known, chunks, strict=True) if told.null_count < chunk.num_values]
        if not told or not all(one.has_min_max for one in told):
            return
        if pa.types.is_floating(kind) and (len(path) > 1 or path[0] not in self._finite):
            return
        least, greatest = _bounds(kind, [one.min_raw for one in told], [one.max_raw for one in told])
        if least is not None and greatest is not None:
            _put(self.least, path, least)
            _put(self.greatest, path, greatest)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _bounds(kind: pa.DataType, least: Sequence[Any], greatest: Sequence[Any]) -> Bounds:
    """As JSON values; None for what cannot be told."""
    if pa.types.is_signed_integer(kind) or pa.types.is_floating(kind):
        return min(least), max(greatest)
    if pa.types.is_string(kind):
        return _cut(min(least).decode()), _cut_upwards(max(greatest).decode())
    if pa.types.is_date32(kind):
        return _day(min(least)), _day(max(greatest))
    if pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
        factor = _MICROSECONDS[kind.unit]
        first, last = min(least) * factor // 1000, -(-max(greatest) * factor // 1000)
        return _moment(first, kind.tz), _moment(last, kind.tz)
    if pa.types.is_decimal(kind):
        first, last = min(map(_integer, least)), max(map(_integer, greatest))
        return _rounded(first, kind, ROUND_FLOOR), _rounded(last, kind, ROUND_CEILING)
    return None, None


def _cut(text: str) -> str:
    return text[:MOST_CHARACTERS]


def _cut_upwards(text: str) -> str | None:
    """The text if it is short, else a short one that comes after all that begin like it."""
    if len(text) <= MOST_CHARACTERS:
        return text
    cut = text[:MOST_CHARACTERS].rstrip(chr(_LAST_CHARACTER))
    if not cut:
        return None
    following = ord(cut[-1]) + 1
    return cut[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _day(number: int) -> str | None:
    return str(np.datetime64(number, "D")) if _FIRST_DAY <= number <= _LAST_DAY else None


def _moment(milliseconds: int, zone: str | None) -> str | None:
    if not _FIRST_DAY <= milliseconds // 86_400_000 <= _LAST_DAY:
        return None
    return f"{np.datetime64(milliseconds, 'ms')}{'' if zone is None else 'Z'}"


def _integer(raw: int | bytes) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _rounded(unscaled: int, kind: pa.DataType, rounding: str) -> orjson.Fragment | None:
    """A number without an exponent, which some readers do not understand."""
    exact = Decimal(unscaled).scaleb(-kind.scale, Context(prec=80))
    value = Context(prec=DECIMAL_DIGITS, rounding=rounding).plus(exact)
    fits = abs(value.scaleb(kind.scale, Context(prec=80))) < 10**kind.precision
    return orjson.Fragment(format(value, "f").encode()) if fits else None
