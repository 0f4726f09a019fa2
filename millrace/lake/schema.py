"""A table's schema: declared Arrow columns in, Delta's schema JSON and the stored columns out.
Refuses types that Delta does not have, and changes other than added columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

import orjson
import pyarrow as pa

from millrace.arrow.types import OWN_COLUMNS, is_list
from millrace.arrow.types import arrow_schema as columns_as_stored
from millrace.lake.bounds import parsed
from millrace.model.errors import Clash, Corrupt, Invalid
from millrace.model.table import Definition

VERSION_COLUMN = "_version"
SYSTEM_COLUMNS = tuple(field.with_nullable(True) for field in OWN_COLUMNS)
DeletionVectors = Literal["auto", "never"]

_REMEDY = "Restore the last entry of its log that has a schema, from a copy."
_SCALARS: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}
_ARROW_SCALARS: Mapping[str, pa.DataType] = {
    **{name: kind for kind, name in reversed(list(_SCALARS.items()))},
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


@dataclass(frozen=True)
class TableSpec:
    """A table as declared. Without a key rows are appended, each chunk once; chunk ids are kept for `chunk_memory`."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    deletion_vectors: DeletionVectors = "auto"
    chunk_memory: timedelta = timedelta(days=30)
    log_retention: timedelta = timedelta(hours=6)
    change_feed: bool = False

    def __post_init__(self) -> None:
        missing = [column for column in self.key if column not in self.schema.names]
        if missing:
            raise Invalid(f"Table {self.name!r} has no key column {missing}.", remedy=f"Columns: {self.schema.names}.")

    @cached_property
    def delta_fields(self) -> tuple[dict[str, Any], ...]:
        """The declared columns and then the platform's, as Delta's schema."""
        return tuple(_delta_field(field) for field in (*self.schema, *SYSTEM_COLUMNS))


def spec_of(definition: Definition) -> TableSpec:
    """The table that a definition declares."""
    table = definition.table
    vectors: DeletionVectors = "never" if table.deletion_vectors == "never" else "auto"
    columns = columns_as_stored(definition.columns)
    return TableSpec(table.name, columns, table.primary_key, vectors, change_feed=table.change_feed)


def declared_schema(spec: TableSpec, others: Sequence[dict[str, Any]] = ()) -> str:
    """The schema JSON of the spec, without earlier columns, and with those that other engines have added."""
    declared = {field["name"].lower() for field in spec.delta_fields}
    more = [field for field in others if field["name"].lower() not in declared]
    own = len(spec.delta_fields) - len(SYSTEM_COLUMNS)
    return _schema_json((*spec.delta_fields[:own], *more, *spec.delta_fields[own:]))


def evolved_schema(current: str | None, spec: TableSpec) -> str:
    """The table's schema JSON with the columns of `spec`: the same text if nothing was added. Columns are never removed."""
    if current is None:
        return declared_schema(spec)
    stored = parsed(current)["fields"]
    types = {field["name"].lower(): field["type"] for field in stored}
    added = []
    for field in spec.delta_fields:
        known = types.get(field["name"].lower())
        if known is None:
            added.append(field)
        elif known != field["type"]:
            raise Clash(
                f"Column {field['name']!r} of table {spec.name!r} is stored as {known}, not {field['type']}.",
                remedy="Declare a new generation of the table to change a column's type.",
            )
    if not added:
        return current
    ours = {field.name for field in SYSTEM_COLUMNS}
    declared = [field for field in stored if field["name"] not in ours]
    return _schema_json((*declared, *added, *(field for field in stored if field["name"] in ours)))


def added_by_others(current: str, recorded: TableSpec) -> tuple[dict[str, Any], ...]:
    """The fields of a table that its declaration does not have."""
    ours = {field["name"].lower() for field in recorded.delta_fields}
    return tuple(field for field in parsed(current)["fields"] if field["name"].lower() not in ours)


def needs_timestamp_ntz(schema_json: str) -> bool:
    return '"timestamp_ntz"' in schema_json


def arrow_schema(schema_json: str) -> pa.Schema:
    """The columns as they come back from Parquet. Any engine may have written the schema."""
    try:
        return pa.schema([_arrow_field(field) for field in parsed(schema_json)["fields"]])
    except RecursionError:
        raise Corrupt("The table's schema is nested too deep.", remedy=_REMEDY) from None
    except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        raise Corrupt(
            f"The table's schema is damaged: {type(error).__name__}: {error}"[:300], remedy=_REMEDY
        ) from error


def declared_columns(schema_json: str) -> pa.Schema:
    """The columns without the platform's."""
    ours = {field.name for field in SYSTEM_COLUMNS}
    return pa.schema([field for field in arrow_schema(schema_json) if field.name not in ours])


def _arrow_field(field: dict[str, Any]) -> Any:
    return pa.field(field["name"], _arrow_type(field["type"]))


def _arrow_type(delta: Any) -> pa.DataType:
    if isinstance(delta, str):
        if delta.startswith("decimal("):
            precision, scale = delta[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _ARROW_SCALARS[delta]
    if delta["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in delta["fields"]])
    if delta["type"] == "map":
        return pa.map_(_arrow_type(delta["keyType"]), _arrow_type(delta["valueType"]))
    return pa.list_(pa.field("element", _arrow_type(delta["elementType"])))


def _schema_json(fields: tuple[dict[str, Any], ...]) -> str:
    return orjson.dumps({"type": "struct", "fields": fields}).decode()


def _delta_field(field: Any) -> dict[str, Any]:
    # The judge has checked required values. A Delta invariant would only exclude simpler writers.
    return {"name": field.name, "type": _delta_type(field.type, field.name), "nullable": True, "metadata": {}}


def _delta_type(kind: pa.DataType, where: str) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_dictionary(kind):
        return _delta_type(kind.value_type, where)
    return _delta_nested_type(kind, where)


def _delta_nested_type(kind: pa.DataType, where: str) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_delta_field(kind.field(n)) for n in range(kind.num_fields)]}
    if pa.types.is_map(kind):
        key, value = _delta_type(kind.key_type, where), _delta_type(kind.item_type, where)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if is_list(kind):
        return {"type": "array", "elementType": _delta_type(kind.value_type, where), "containsNull": True}
    raise Invalid(
        f"Column {where!r} has the type {kind}, which Delta cannot hold.", remedy="Declare it as a number or a string."
    )
