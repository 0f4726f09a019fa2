"""Arrow batches as the text that LOAD DATA and INSERT read: null is the word NULL without quotes, other text is quoted.

MySQL has neither NaN nor infinities: such a cell is null, and an extra column says what it was."""

import io
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.errors import Invalid
from millrace.sink.encoders.json_cells import hex_text, json_text

STATEMENT_BYTES = 1 << 20


def plain(column: pa.Array) -> pa.Array:
    """The cells as numbers or text: bytes as hexadecimal digits, timestamps in UTC, nested values as JSON."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        return column
    for is_such, made in _MAKERS:
        if is_such(kind):
            return made(column)
    return column.cast(pa.string())


def _finite(column: pa.Array) -> pa.Array:
    wide = column.cast(pa.float64())
    return pc.if_else(pc.is_finite(wide), wide, pa.scalar(None, pa.float64()))


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_boolean, lambda column: column.cast(pa.int8())),
    (pa.types.is_floating, _finite),
    (pa.types.is_binary, hex_text),
    (pa.types.is_timestamp, lambda column: column.cast(pa.timestamp("us")).cast(pa.string())),
    (pa.types.is_nested, json_text),
)


def not_finite(batch: pa.RecordBatch, key: tuple[str, ...]) -> pa.Array:
    """The numbers that `plain` makes null, as JSON by column; null if a row has none."""
    parts = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_floating(column.type):
            continue
        is_odd = pc.fill_null(pc.invert(pc.is_finite(column)), False)
        if pc.any(is_odd).as_py():
            if name in key:
                raise Invalid(f"A key ({name!r}) is not a finite number, which MySQL cannot keep.")
            member = pc.binary_join_element_wise(orjson.dumps(name).decode() + ':"', column.cast(pa.string()), '",', "")
            parts.append(pc.if_else(is_odd, member, ""))
    if not parts:
        return pa.nulls(batch.num_rows, pa.string())
    joined = pc.utf8_rtrim(pc.binary_join_element_wise(*parts, ""), ",")
    written = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), written)


def to_text(batch: pa.RecordBatch) -> bytes:
    """A line per row; the cells must be `plain`."""
    text = io.BytesIO()
    frame = pl.DataFrame(batch)
    frame.write_csv(text, include_header=False, null_value="NULL", quote_style="non_numeric")
    return text.getvalue()


def to_values(batch: pa.RecordBatch, is_coded: Sequence[bool]) -> Iterator[str]:
    """Rows as VALUES writes them, in pieces. The cells must be `plain`; `is_coded` says which are hexadecimal digits."""
    cells = [_literals(column, coded) for column, coded in zip(batch.columns, is_coded, strict=True)]
    rows = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*cells, ","), ")", "")
    ends = np.cumsum(pc.binary_length(rows).to_numpy())
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + STATEMENT_BYTES, side="right")))
        yield ",".join(rows[begin:end].to_pylist())
        begin = end


def _literals(column: pa.Array, is_coded: bool) -> pa.Array:
    text = column.cast(pa.string())
    if is_coded:
        text = pc.binary_join_element_wise("x'", text, "'", "")
    elif pa.types.is_string(column.type):
        text = pc.binary_join_element_wise("'", pc.replace_substring(text, "'", "''"), "'", "")
    return pc.fill_null(text, "NULL")
