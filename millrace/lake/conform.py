"""Rows as a data file has them in, the same rows with the table's columns and exact types out. Any engine may have written
the file: with views, dictionaries, large or narrower types, INT96 timestamps, or without a column. Refuses a column whose
values are of another kind than the table's.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.model.errors import Corrupt

# A row without a version, which another engine has added, is older than every import.
UNVERSIONED = 0
# Nanoseconds, Arrow's choice for INT96, end in the year 2262; later times would become others.
INT96_UNIT = "us"

_MOST_TEXT = 200


@contextmanager
def opened(source: str | BinaryIO) -> Iterator[pq.ParquetFile]:
    options = {"memory_map": True, "page_checksum_verification": True, "coerce_int96_timestamp_unit": INT96_UNIT}
    with pq.ParquetFile(source, **options) as parquet:
        yield parquet


def present(stored: pa.Schema, wanted: Sequence[str]) -> list[str]:
    """The wanted columns that a file has. If it has none of them, its first column: it tells the number of rows."""
    names = [name for name in wanted if name in stored.names]
    return names or stored.names[:1]


def conformed(rows: pa.Table, schema: pa.Schema, where: str, name: str) -> pa.Table:
    """`where` and `name` are the table and the file that the rows are from."""
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        try:
            columns.append(_cast(rows[field.name], field.type))
        except (pa.ArrowException, NotImplementedError) as error:
            raise _misfit(rows.schema.field(field.name), field, where, name, error) from error
    return pa.Table.from_arrays(columns, schema=schema)


def versions_of(cells: Any) -> npt.NDArray[np.int64]:
    """The versions of rows."""
    filled = cells.fill_null(UNVERSIONED) if cells.null_count else cells
    versions: npt.NDArray[np.int64] = filled.to_numpy().astype(np.int64, copy=False)
    return versions


def _cast(cells: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if cells.type == kind:
        return cells
    if pa.types.is_dictionary(cells.type):
        return _cast(cells.cast(cells.type.value_type), kind)
    if pa.types.is_floating(cells.type) and pa.types.is_floating(kind) and cells.type.bit_width > kind.bit_width:
        raise pa.ArrowTypeError("its numbers are longer")
    if pa.types.is_null(cells.type) or _family(cells.type) == _family(kind):
        # Delta's timestamps have microseconds; what is finer has no place in the table.
        return cells.cast(kind, safe=not pa.types.is_timestamp(kind))
    if (_family(cells.type), _family(kind)) == ("binary", "string"):
        # Some writers do not say that their bytes are text.
        return cells.cast(kind)
    raise pa.ArrowTypeError("its values are of another kind")


def _family(kind: pa.DataType) -> str:
    """Types of one family have the same values, apart from their range and precision."""
    named = {
        "integer": pa.types.is_integer, "float": pa.types.is_floating, "decimal": pa.types.is_decimal,
        "timestamp": pa.types.is_timestamp, "date": pa.types.is_date, "struct": pa.types.is_struct,
        "map": pa.types.is_map, "list": _is_list, "string": _is_text, "binary": _is_binary,
    }  # fmt: skip
    return next((name for name, is_one in named.items() if is_one(kind)), str(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(plain or pa.types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    plain = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(plain or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _misfit(stored: Any, field: Any, where: str, name: str, error: Exception) -> Corrupt:
    return Corrupt(
        f"Column {field.name!r} of {name} has the type {stored.type}; the Delta table at {where} declares "
        f"{field.type}: {str(error)[:_MOST_TEXT]}.",
        remedy="Undo the change with the engine that wrote the file (RESTORE TABLE … TO VERSION AS OF …).",
    )
