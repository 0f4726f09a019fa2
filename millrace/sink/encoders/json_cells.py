"""Arrow columns as JSON: one text per cell, one object per row.

Bytes become hexadecimal digits, decimals become text, timestamps ISO 8601 in UTC, maps objects. A number that is not finite
becomes the text NaN, Infinity or -Infinity. Only nested cells become Python values."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_text(column: pa.Array) -> pa.Array:
    """The JSON of each cell; null stays null."""
    kind = column.type
    cells = column.to_pylist()
    return pa.array(
        [None if cell is None else orjson.dumps(nested(cell, kind, _scalar)).decode() for cell in cells], pa.string()
    )


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Each row as one JSON object; a number of 32 bits has the digits that it has as one of 64."""
    wide = [column.cast(pa.float64()) if pa.types.is_floating(column.type) else column for column in batch.columns]
    return json_objects(batch.schema.names, wide)


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> list[bytes]:
    """One object per row, its members in the order of the columns, whatever is in them: a key has one spelling."""
    parts: list[pl.Expr] = []
    cells: dict[str, pl.Series] = {}
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        begins = ("{" if place == 0 else ",") + orjson.dumps(name).decode() + ":"
        cells[str(place)] = _json_texts(column)
        parts += [pl.lit(begins), pl.col(str(place))]
    objects = pl.DataFrame(cells).select(pl.concat_str([*parts, pl.lit("}")]))
    return objects.to_series().cast(pl.Binary).to_list()


def _json_texts(column: pa.Array) -> pl.Series:
    """Each cell as JSON text."""
    kind = column.type
    if pa.types.is_nested(kind):
        return pl.Series(json_text(column)).fill_null("null")
    if pa.types.is_floating(kind):
        return _numbers(pl.Series(column))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pl.Series(column).cast(pl.String).fill_null("null")
    if pa.types.is_binary(kind):
        return _quoted(pl.Series(hex_text(column)))
    if pa.types.is_timestamp(kind):
        return _quoted(pl.Series(column).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    return _quoted(pl.Series(column.cast(pa.string())))


def _numbers(cells: pl.Series) -> pl.Series:
    number = pl.col("x")
    words = pl.when(number.is_nan()).then(pl.lit('"NaN"')).when(number > 0)
    infinite = words.then(pl.lit('"Infinity"')).otherwise(pl.lit('"-Infinity"'))
    chosen = pl.when(number.is_finite()).then(number.cast(pl.String)).when(number.is_null()).then(pl.lit("null"))
    return pl.DataFrame({"x": cells}).select(chosen.otherwise(infinite)).to_series()


def _quoted(cells: pl.Series) -> pl.Series:
    framed = pl.DataFrame({"x": cells}).select(pl.struct("x").struct.json_encode()).to_series()
    return framed.str.strip_prefix('{"x":').str.strip_suffix("}")


def hex_text(column: pa.Array) -> pa.Array:
    return pl.Series(column).bin.encode("hex").to_arrow().cast(pa.string())


def nested(cell: Any, kind: pa.DataType, scalar: Callable[[Any], Any]) -> Any:
    """A value of any depth with its maps as dictionaries and each scalar as `scalar` makes it."""
    if cell is None:
        return None
    if pa.types.is_map(kind):
        return {name: nested(value, kind.item_type, scalar) for name, value in cell}
    if pa.types.is_struct(kind):
        return {field.name: nested(cell[field.name], field.type, scalar) for field in kind}
    if pa.types.is_list(kind):
        return [nested(value, kind.value_type, scalar) for value in cell]
    return scalar(cell)


def _scalar(cell: Any) -> Any:
    match cell:
        case bytes():
            return cell.hex()
        case Decimal():
            return str(cell)
        case datetime():
            return cell.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case float() if not math.isfinite(cell):
            return _NOT_FINITE[str(cell)]
    return cell
