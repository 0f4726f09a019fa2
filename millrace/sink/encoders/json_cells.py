"""Arrow columns as JSON: one text per cell, one object per row.

Bytes become hexadecimal digits, decimals become text, timestamps ISO 8601 in UTC, maps objects. A number that is not finite
becomes the text NaN, Infinity or -Infinity. Only nested cells and such numbers become Python values."""

import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_text(column: pa.Array) -> pa.Array:
    """The JSON of each cell; null stays null."""
    kind = column.type
    cells = column.to_pylist()
    return pa.array(
        [None if cell is None else orjson.dumps(nested(cell, kind, _scalar)).decode() for cell in cells], pa.string()
    )


def json_rows(batch: pa.RecordBatch) -> list[bytes]:
    """Each row as one JSON object: first its flat columns in the batch's order, then the nested ones."""
    flat, deep = {}, {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_nested(column.type) or _has_odd_numbers(column):
            deep[name] = pc.fill_null(json_text(column), "null")
        else:
            flat[name] = _flat(column)
    texts: pa.Array = _objects(flat, batch.num_rows)
    for name, text in deep.items():
        opened = pc.utf8_slice_codeunits(texts, 0, -1)
        comma = pc.if_else(pc.equal(opened, "{"), "", ",")
        texts = pc.binary_join_element_wise(opened, comma, orjson.dumps(name).decode() + ":", text, "}", "")
    found: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return found


def _objects(flat: dict[str, pa.Array], rows: int) -> pa.Array:
    if not flat:
        return pa.repeat(pa.scalar("{}"), rows)
    frame = pl.DataFrame(flat)
    encoded = frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_arrow()
    return encoded.cast(pa.string())


def _has_odd_numbers(column: pa.Array) -> bool:
    if not pa.types.is_floating(column.type):
        return False
    found: bool | None = pc.any(pc.invert(pc.is_finite(column))).as_py()
    return bool(found)


def _flat(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind):
        return hex_text(column)
    if pa.types.is_timestamp(kind):
        return pc.strftime(column.cast(pa.timestamp("us", tz="UTC")), format="%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column


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
