"""Stored types and columns in, Arrow types and schemas out."""

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from millrace.model import stored_types as kinds
from millrace.model.columns import Column
from millrace.model.stored_types import StoredField, StoredType

_PLAIN = {
    kinds.BOOLEAN: pa.bool_(),
    kinds.INT32: pa.int32(),
    kinds.INT64: pa.int64(),
    kinds.FLOAT32: pa.float32(),
    kinds.FLOAT64: pa.float64(),
    kinds.BINARY: pa.binary(),
    kinds.STRING: pa.string(),
    kinds.DATE: pa.date32(),
    kinds.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
OWN_COLUMNS = pa.schema(
    [
        pa.field("_version", pa.int64(), False),
        pa.field("_import", pa.string(), False),
        pa.field("_row", pa.int64(), False),
    ]
)


def arrow_type(column: Column) -> pa.DataType:
    """How the column's values are held in Arrow, Parquet and Delta."""
    stored = column.stored
    # Asked for each column of each chunk: most types need no hash of the stored type.
    plain = _PLAIN.get(stored.kind)
    return arrow_of(stored) if plain is None else plain


@lru_cache(maxsize=4096)
def arrow_of(stored: StoredType) -> pa.DataType:
    match stored.kind:
        case kinds.DECIMAL:
            return pa.decimal128(stored.precision, stored.scale)
        case kinds.LIST:
            return pa.list_(_field(stored.parts[0]))
        case kinds.MAP:
            return pa.map_(pa.string(), _field(stored.parts[0]))
        case kinds.STRUCT:
            return pa.struct([_field(part) for part in stored.parts])
    return _PLAIN[stored.kind]


def _field(part: StoredField) -> pa.Field:
    return pa.field(part.name, arrow_of(part.type), part.nullable)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The declared columns as stored, without the platform's own."""
    return pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in columns])


def stored_schema(columns: Sequence[Column]) -> pa.Schema:
    """The declared columns followed by the platform's own: the shape of every sink."""
    return pa.schema([*arrow_schema(columns), *OWN_COLUMNS])
