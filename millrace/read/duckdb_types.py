"""Arrow types in, DuckDB's type names out. Refuses types that no table of the platform can have."""

import pyarrow as pa

from millrace.model.errors import Corrupt
from millrace.read.views import identifier

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    pa.date32(): "DATE",
}


def duckdb_type(kind: pa.DataType) -> str:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "BLOB" if pa.types.is_fixed_size_binary(kind) else _nested_type(kind)


def _nested_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"STRUCT({', '.join(f'{identifier(field.name)} {duckdb_type(field.type)}' for field in fields)})"
    raise Corrupt(
        f"A column has the type {kind}, which no query can read.", remedy="Declare it as a number or a string."
    )
