"""Arrow batches as CSV that a database's bulk loader reads: null is an empty cell without quotes, text is always quoted."""

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv as pcsv

from millrace.sink.encoders.json_cells import json_text

_OPTIONS = pcsv.WriteOptions(include_header=False, quoting_style="needed")


def to_csv(batch: pa.RecordBatch) -> memoryview:
    """Bytes become \\x and hexadecimal digits, nested values become JSON."""
    columns = [_plain(column) for column in batch.columns]
    sink = pa.BufferOutputStream()
    pcsv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), sink, _OPTIONS)
    return memoryview(sink.getvalue())


def cell_text(value: Any, kind: pa.DataType) -> str:
    """One value as a loader would read it."""
    text = bytes(to_csv(pa.record_batch([pa.array([value], kind)], names=["value"]))).decode().rstrip("\n")
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        return json_text(column)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        coded = ("\\x" + pl.from_arrow(column.cast(pa.binary())).bin.encode("hex")).to_arrow()  # type: ignore[union-attr]
        return coded.cast(pa.string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
