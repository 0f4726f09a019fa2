"""The text of a column's cells in, its typed values out. A cell that is no value of the type becomes null and a fault.

Each cell is judged on its own, by one engine per type: other cells never matter. What counts as a value, unless the column
says how it is written (model/written.py):
int, long   digits with an optional sign            boolean  true/false, t/f, yes/no, y/n, 1/0 in any case
float, double  digits, point, exponent, inf, nan    decimal  exact: never rounded, trailing zeros may be dropped
enum        one of the symbols                      fixed    exactly `size` bytes
uuid        8-4-4-4-12 hexadecimal digits           string   any text without NUL; bytes: any bytes
date, time, timestamp: see moments. Spaces and tabs around numbers, booleans and moments are ignored."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.model.written import Writing
from millrace.validate import moments, patterned
from millrace.validate.expected import expected, meaning
from millrace.validate.faults import RowFault, Rows, indices, lossy, same, worded
from millrace.validate.halving import cast_each
from millrace.validate.numbers import plain_numbers

Outcome = tuple[pa.Array, list[RowFault]]

_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_WHOLE = r"^[ \t]*[+-]?[0-9]+[ \t]*$"
_NUMBER = r"^[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_INFINITY = r"(?i)^[ \t]*[+-]?inf(inity)?[ \t]*$"
_RANGE = {"int": "-2147483648 to 2147483647", "long": "-9223372036854775808 to 9223372036854775807"}


def typed_text(column: Column, text: pa.Array) -> Outcome:
    """The cells of a scalar column as its type. `text` is a string array without invalid UTF-8 or NUL."""
    return _READERS[meaning(column)](column, text)


def lost(text: pa.Array, values: pa.Array) -> Rows:
    """The cells that have text and got no value."""
    if values.null_count == text.null_count:
        return np.empty(0, np.int64)
    return indices(pc.and_(pc.is_valid(text), pc.is_null(values)))


def _trimming(parse: Callable[[pa.Array], pa.Array], text: pa.Array) -> tuple[pa.Array, Rows]:
    """The values, and the cells that are no values even without the spaces around them."""
    values = parse(text)
    bad = lost(text, values)
    if not len(bad):
        return values, bad
    again = parse(pc.utf8_trim(text.take(pa.array(bad)), " \t"))
    if again.null_count == len(bad):
        return values, bad
    mask = np.zeros(len(text), bool)
    mask[bad] = True
    return pc.replace_with_mask(values, pa.array(mask), again), bad[pc.is_null(again).to_numpy(zero_copy_only=False)]


def _polars(dtype: Any) -> Callable[[pa.Array], pa.Array]:
    def parse(text: pa.Array) -> pa.Array:
        series = pl.from_arrow(text)
        assert isinstance(series, pl.Series)
        return series.cast(dtype, strict=False).to_arrow()

    return parse


def _none_of(column: Column, text: pa.Array, bad: Rows) -> list[RowFault]:
    if not len(bad):
        return []
    return [worded(bad, column.name, "type", "'", text.take(pa.array(bad)), f"' is not {expected(column)}")]


def _unfit(column: Column, text: pa.Array, bad: Rows, shape: str, limits: str) -> list[RowFault]:
    """Faults of bad cells: those that look like a number are out of range, the others are no numbers."""
    if not len(bad):
        return []
    cells = text.take(pa.array(bad))
    numeric = pc.match_substring_regex(_plain(column)(pc.utf8_trim(cells, " \t")), shape).to_numpy(zero_copy_only=False)
    faults = _none_of(column, text, bad[~numeric]) if not numeric.all() else []
    if numeric.any():
        faults.append(
            worded(bad[numeric], column.name, "range", "", cells.filter(pa.array(numeric)), f" does not fit {limits}")
        )
    return faults


def _all_plain(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Casts the whole column with Arrow, which is faster. Apart from 0x…, Arrow takes no cell that polars would refuse."""
    data = text.buffers()[2]
    letters = data.to_pybytes() if data is not None else b""
    if b"x" in letters or b"X" in letters:
        return None
    try:
        return pc.cast(text, target)
    except pa.ArrowInvalid:
        return None


def _plain(column: Column) -> Callable[[pa.Array], pa.Array]:
    """Numbers as everybody reads them."""
    written = column.written
    if not written.has_own_numbers:
        return lambda text: text
    # A whole number has no decimal separator, so its thousands may be separated by a point.
    decimal = "" if column.kind in ("int", "long") else written.decimal_separator
    return lambda text: plain_numbers(text, decimal, written.thousands_separator)


def _integer(column: Column, text: pa.Array) -> Outcome:
    plain = _plain(column)
    whole = _all_plain(plain(text), arrow_type(column))
    if whole is not None:
        return whole, []
    cast = _polars(pl.Int32 if column.kind == "int" else pl.Int64)
    values, bad = _trimming(lambda cells: cast(plain(cells)), text)
    return values, _unfit(column, text, bad, _WHOLE, f"{column.kind} ({_RANGE[column.kind]})")


def _floating(column: Column, text: pa.Array) -> Outcome:
    plain, cast = _plain(column), _polars(pl.Float32 if column.kind == "float" else pl.Float64)
    values, bad = _trimming(lambda cells: cast(plain(cells)), text)
    faults = _unfit(column, text, bad, _NUMBER, column.kind)
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        rows = indices(infinite)
        overflown = rows[~pc.match_substring_regex(text.take(pa.array(rows)), _INFINITY).to_numpy(zero_copy_only=False)]
        faults += _unfit(column, text, overflown, _NUMBER, column.kind)
    return values, faults


@lru_cache(maxsize=1024)
def _boolean_texts(written: Writing) -> tuple[pa.Array, pa.Array]:
    """What means true, and what means true or false."""
    true, false = ([text.lower() for text in texts] for texts in (written.true_texts, written.false_texts))
    return pa.array(true), pa.array([*true, *false])


def _boolean(column: Column, text: pa.Array) -> Outcome:
    true, either = _boolean_texts(column.written)

    def parse(cells: pa.Array) -> pa.Array:
        lower = pc.utf8_lower(cells)
        known = pc.is_in(lower, either)
        return pc.if_else(known, pc.is_in(lower, true), pa.scalar(None, pa.bool_()))

    values, bad = _trimming(parse, text)
    return values, _none_of(column, text, bad)


def _decimal(column: Column, text: pa.Array) -> Outcome:
    plain = _plain(column)
    try:
        return pc.cast(plain(text), arrow_type(column)), []
    except pa.ArrowInvalid:
        trimmed = plain(pc.utf8_trim(text, " \t"))
    numeric = pc.match_substring_regex(trimmed, _NUMBER)
    values, _ = cast_each(pc.if_else(numeric, trimmed, pa.scalar(None, pa.string())), arrow_type(column))
    precision, scale = arrow_type(column).precision, arrow_type(column).scale
    limits = f"decimal({precision},{scale}): {precision - scale} digits before and {scale} after the point"
    return values, _unfit(column, text, lost(text, values), _NUMBER, limits)


def _moment(column: Column, text: pa.Array) -> Outcome:
    values, bad = _trimming(_moment_parser(column, column.written.time_zone), text)
    zone = column.written.time_zone
    if not len(bad) or zone == "UTC":
        return values, _none_of(column, text, bad)
    cells = text.take(pa.array(bad))
    # What is a moment in UTC and none in the zone is a time that its clocks never showed.
    skipped = pc.is_valid(_trimming(_moment_parser(column, "UTC"), cells)[0]).to_numpy(zero_copy_only=False)
    faults = _none_of(column, text, bad[~skipped])
    if skipped.any():
        never = f"' does not exist in {zone}: the clocks were set forward over it"
        faults.append(worded(bad[skipped], column.name, "time_zone", "'", cells.filter(pa.array(skipped)), never))
    return values, faults


def _moment_parser(column: Column, zone: str) -> Callable[[pa.Array], pa.Array]:
    name, formats = meaning(column), column.written.formats
    digits = 3 if name == "time-millis" else 6
    if name == "date":
        return (lambda text: patterned.dates(text, formats)) if formats else moments.dates
    if name.startswith("time-"):
        if formats:
            return lambda text: patterned.times(text, formats, digits)
        return lambda text: moments.times(text, digits)
    if formats:
        return lambda text: patterned.timestamps(text, formats, zone)
    return lambda text: moments.timestamps(text, zone)


def _uuid(column: Column, text: pa.Array) -> Outcome:
    return text, _none_of(column, text, indices(pc.invert(pc.match_substring_regex(text, _UUID)).fill_null(False)))


def _enum(column: Column, text: pa.Array) -> Outcome:
    symbols = column.avro["symbols"]
    strange = indices(pc.and_(pc.is_valid(text), pc.invert(pc.is_in(text, pa.array(symbols, pa.string())))))
    if not len(strange):
        return text, []
    listed = ", ".join(symbols[:10]) + (f" and {len(symbols) - 10} more" if len(symbols) > 10 else "")
    return text, [worded(strange, column.name, "enum", "'", text.take(pa.array(strange)), f"' is not one of: {listed}")]


def _fixed(column: Column, text: pa.Array) -> Outcome:
    size = column.avro["size"]
    cells = text.view(pa.binary())
    wrong = indices(pc.not_equal(pc.binary_length(text), size).fill_null(False))
    if not len(wrong):
        return cells, []
    shown = lossy(cells.take(pa.array(wrong)))
    return cells, [same(wrong, column.name, "length", f"is not {size} bytes long", shown)]


_READERS: dict[str, Callable[[Column, pa.Array], Outcome]] = {
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "boolean": _boolean,
    "decimal": _decimal,
    "date": _moment,
    "time-millis": _moment,
    "time-micros": _moment,
    "timestamp-millis": _moment,
    "timestamp-micros": _moment,
    "uuid": _uuid,
    "enum": _enum,
    "fixed": _fixed,
    "string": lambda column, text: (text, []),
    "bytes": lambda column, text: (text.view(pa.binary()), []),
}
