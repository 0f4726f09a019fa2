"""Arrow batches as CSV that a database's bulk loader reads: null is an empty cell without quotes, text is always quoted."""

from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.csv as pcsv

_OPTIONS = pcsv.WriteOptions(include_header=False, quoting_style="needed")


def to_csv(batch: pa.RecordBatch) -> memoryview:
    """Bytes as \\x and hexadecimal digits, nested values as JSON."""
    columns = [_plain(column) for column in batch.columns]
    sink = pa.BufferOutputStream()
    pcsv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), sink, _OPTIONS)
    return memoryview(sink.getvalue())


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        return json_texts(column)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        coded = ("\\x" + pl.from_arrow(column.cast(pa.binary())).bin.encode("hex")).to_arrow()  # type: ignore[union-attr]
        return coded.cast(pa.string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column


def json_texts(column: pa.Array) -> pa.Array:
    """Nested values as JSON."""
    return pa.array([None if cell is None else _json(cell) for cell in column.to_pylist()], pa.string())


def _json(cell: Any) -> str:
    return orjson.dumps(as_json_value(cell), default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def as_json_value(cell: Any) -> Any:
    """A nested value as JSON has it: maps become objects, bytes hexadecimal text."""
    if isinstance(cell, bytes):
        return cell.hex()
    if isinstance(cell, dict):
        return {name: as_json_value(value) for name, value in cell.items()}
    if isinstance(cell, list):
        if cell and all(isinstance(pair, tuple) for pair in cell):
            return {name: as_json_value(value) for name, value in cell}
        return [as_json_value(value) for value in cell]
    return cell
