"""The text of a column's cells in, its typed values out. A cell that is no value of the type becomes null and a fault.

Each cell is judged on its own, by one engine per type: other cells never matter. What counts as a value:
int, long   digits with an optional sign            boolean  true/false, t/f, yes/no, y/n, 1/0 in any case
float, double  digits, point, exponent, inf, nan    decimal  exact: never rounded, trailing zeros may be dropped
enum        one of the symbols                      fixed    exactly `size` bytes
uuid        8-4-4-4-12 hexadecimal digits           string   any text without NUL; bytes: any bytes
date, time, timestamp: see moments. Spaces and tabs around numbers, booleans and moments are ignored."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.validate import moments
from millrace.validate.faults import RowFault, Rows, indices, lossy, same, worded
from millrace.validate.halving import cast_each

Outcome = tuple[pa.Array, list[RowFault]]

_TRUE = pa.array(["true", "t", "yes", "y", "1"])
_BOOLEAN = pa.array([*_TRUE.to_pylist(), "false", "f", "no", "n", "0"])
_UUID = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_WHOLE = r"^[ \t]*[+-]?[0-9]+[ \t]*$"
_NUMBER = r"^[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_INFINITY = r"(?i)^[ \t]*[+-]?inf(inity)?[ \t]*$"
_RANGE = {"int": "-2147483648 to 2147483647", "long": "-9223372036854775808 to 9223372036854775807"}
_CALLED = {
    "int": "an int",
    "boolean": "a boolean (true or false)",
    "date": "a date (YYYY-MM-DD)",
    "time-millis": "a time (HH:MM:SS[.fff])",
    "time-micros": "a time (HH:MM:SS[.ffffff])",
    "timestamp-millis": "a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
    "timestamp-micros": "a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
}


def meaning(column: Column) -> str:
    """The name that decides how cells are read: the column's logical type, else its kind."""
    return column.logical or column.kind


def typed_text(column: Column, text: pa.Array) -> Outcome:
    """The cells of a scalar column as its type. `text` is a string array without invalid UTF-8 or NUL."""
    return _READERS[meaning(column)](column, text)


def called(name: str) -> str:
    return _CALLED.get(name, f"a {name}")


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
    return [worded(bad, column.name, "type", "'", text.take(pa.array(bad)), f"' is not {called(meaning(column))}")]


def _unfit(column: Column, text: pa.Array, bad: Rows, shape: str, limits: str) -> list[RowFault]:
    """Faults of bad cells: those that look like a number are out of range, the others are no numbers."""
    if not len(bad):
        return []
    cells = text.take(pa.array(bad))
    numeric = pc.match_substring_regex(cells, shape).to_numpy(zero_copy_only=False)
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


def _integer(column: Column, text: pa.Array) -> Outcome:
    plain = _all_plain(text, arrow_type(column))
    if plain is not None:
        return plain, []
    values, bad = _trimming(_polars(pl.Int32 if column.kind == "int" else pl.Int64), text)
    return values, _unfit(column, text, bad, _WHOLE, f"{column.kind} ({_RANGE[column.kind]})")


def _floating(column: Column, text: pa.Array) -> Outcome:
    values, bad = _trimming(_polars(pl.Float32 if column.kind == "float" else pl.Float64), text)
    faults = _unfit(column, text, bad, _NUMBER, column.kind)
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        rows = indices(infinite)
        overflown = rows[~pc.match_substring_regex(text.take(pa.array(rows)), _INFINITY).to_numpy(zero_copy_only=False)]
        faults += _unfit(column, text, overflown, _NUMBER, column.kind)
    return values, faults


def _boolean(column: Column, text: pa.Array) -> Outcome:
    def parse(cells: pa.Array) -> pa.Array:
        lower = pc.utf8_lower(cells)
        known = pc.is_in(lower, _BOOLEAN)
        return pc.if_else(known, pc.is_in(lower, _TRUE), pa.scalar(None, pa.bool_()))

    values, bad = _trimming(parse, text)
    return values, _none_of(column, text, bad)


def _decimal(column: Column, text: pa.Array) -> Outcome:
    try:
        return pc.cast(text, arrow_type(column)), []
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim(text, " \t")
    numeric = pc.match_substring_regex(trimmed, _NUMBER)
    values, _ = cast_each(pc.if_else(numeric, trimmed, pa.scalar(None, pa.string())), arrow_type(column))
    precision, scale = arrow_type(column).precision, arrow_type(column).scale
    limits = f"decimal({precision},{scale}): {precision - scale} digits before and {scale} after the point"
    return values, _unfit(column, text, lost(text, values), _NUMBER, limits)


def _moment(parse: Callable[[pa.Array], pa.Array]) -> Callable[[Column, pa.Array], Outcome]:
    def read(column: Column, text: pa.Array) -> Outcome:
        values, bad = _trimming(parse, text)
        return values, _none_of(column, text, bad)

    return read


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
    "date": _moment(moments.dates),
    "time-millis": _moment(lambda text: moments.times(text, 3)),
    "time-micros": _moment(lambda text: moments.times(text, 6)),
    "timestamp-millis": _moment(moments.timestamps),
    "timestamp-micros": _moment(moments.timestamps),
    "uuid": _uuid,
    "enum": _enum,
    "fixed": _fixed,
    "string": lambda column, text: (text, []),
    "bytes": lambda column, text: (text.view(pa.binary()), []),
}
