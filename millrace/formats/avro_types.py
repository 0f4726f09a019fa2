"""An Avro writer's types: the schema to decode values as they stand in the file, the Arrow type that holds them, and whether
they can become rows of the table.

Refuses by column: unions of more than null and one type, types that contain themselves, and types that do not suit the
table. The judge checks nested types."""

from typing import Any

import pyarrow as pa
from fastavro.schema import expand_schema

from millrace.formats.matching import readable_columns, refuse_mismatch
from millrace.formats.pieces import UploadOptions
from millrace.model.columns import Column
from millrace.model.errors import Invalid, words_of
from millrace.model.fields import assigned
from millrace.model.stored_types import MAX_DEPTH, Avro
from millrace.model.table import Definition

_HELD = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    # Read as a long, so that the judge finds a value too large for an int in its own cell.
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_MOMENTS = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{unit}"): pa.timestamp(short, tz)
        for unit, short in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
        for local, tz in (("", "UTC"), ("local-", None))
    },
}
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
}


def without_logical_types(avro: Avro) -> Avro:
    """The same encoding without logical types, so that no decoder fails on a value outside of one."""
    if isinstance(avro, list):
        return [without_logical_types(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    plain = {key: value for key, value in avro.items() if key != "logicalType"}
    for part in plain.keys() & {"type", "items", "values", "fields"}:
        plain[part] = without_logical_types(plain[part])
    return plain


def field_type(field: dict[str, Any]) -> Avro:
    """A field's type. Its logical type may be inside the type or beside it."""
    avro, logical = field["type"], {key: field[key] for key in ("logicalType", "precision", "scale") if key in field}
    inner = alone(avro)
    return {"type": inner, **logical} if isinstance(inner, str) and "logicalType" in logical else avro


def alone(avro: Avro) -> Avro:
    """A type without needless wrapping, and without null if only one other type is left."""
    while True:
        if isinstance(avro, dict) and isinstance(avro.get("type"), (dict, list)):
            avro = avro["type"]
        elif isinstance(avro, list) and len(avro) - avro.count("null") == 1:
            avro = next(branch for branch in avro if branch != "null")
        else:
            return avro


def kind_and_logical(avro: Avro) -> tuple[str, str | None]:
    return (avro.get("type", ""), avro.get("logicalType")) if isinstance(avro, dict) else (str(avro), None)


def fields_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a record's schema. Each named type is written out where it is used."""
    expanded: Any = expand_schema(schema)
    fields: list[dict[str, Any]] = expanded["fields"]
    return fields


def is_decimal(avro: Avro) -> bool:
    kind, logical = kind_and_logical(avro)
    return logical == "decimal" and kind in ("bytes", "fixed")


def held_type(avro: Avro, where: str, depth: int = 0) -> pa.DataType:
    """The Arrow type for values of an Avro type. Decimals are held as text, so that none is too long."""
    avro = alone(avro)
    if depth > MAX_DEPTH:
        raise Invalid(f"Column {where!r} is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(avro, list):
        return _held_union(avro, where)
    kind, logical = kind_and_logical(avro)
    if kind in ("array", "map", "record"):
        return _held_nested(avro, kind, where, depth + 1)
    if is_decimal(avro):
        return pa.string()
    held = _MOMENTS.get((kind, str(logical)), _HELD.get(kind))
    if held is None:
        raise Invalid(f"Column {where!r} is written as {kind!r:.80}, which holds itself.", remedy="Write a flat type.")
    return held


def _held_union(branches: list[Avro], where: str) -> pa.DataType:
    types = len(branches) - branches.count("null")
    if types == 0:
        return pa.null()
    raise Invalid(
        f"Column {where!r} is written as a union of {types} types.", remedy='Write it with one type, or ["null", T].'
    )


def _held_nested(avro: dict[str, Any], kind: str, where: str, depth: int) -> pa.DataType:
    if kind == "array":
        return pa.list_(held_type(avro["items"], where, depth))
    if kind == "map":
        return pa.map_(pa.string(), held_type(avro["values"], where, depth))
    fields = avro["fields"]
    return pa.struct([(field["name"], held_type(field["type"], f"{where}.{field['name']}", depth)) for field in fields])


def refuse_unresolvable(schema: dict[str, Any], definition: Definition, options: UploadOptions) -> None:
    fields = {str(field.get("name")): field.get("type") for field in schema["fields"] if isinstance(field, dict)}
    where = f"{options.what}: its Avro schema"
    refuse_mismatch(list(fields), definition, where, deletes=options.deletes)
    columns = readable_columns(definition, deletes=options.deletes)
    names = assigned(fields, columns)
    for column in columns:
        if column.name in names and not _resolvable(fields[names[column.name]], column):
            avro = fields[names[column.name]]
            written = "decimal" if is_decimal(alone(avro)) else ", ".join(sorted(_kinds(avro)))
            raise Invalid(
                f"{where} writes column {column.name!r} as {written}, the table has {column.kind}.",
                remedy="Write it with the table's type, or one that Avro can promote to it.",
            )
    _refuse_unreadable(schema, set(names.values()), where)


def _refuse_unreadable(schema: dict[str, Any], names: set[str], where: str) -> None:
    try:
        for field in fields_of(schema):
            if field["name"] in names:
                held_type(field_type(field), field["name"])
    except Invalid as refused:
        raise Invalid(f"{where} cannot be read. {refused.message}", remedy=refused.remedy) from refused
    except Exception as error:  # fastavro raises many kinds of exceptions for a wrong schema.
        reason = words_of(error)
        remedy = "Write the file again with a valid schema."
        raise Invalid(f"{where} is not valid: {reason:.200}", remedy=remedy) from error


def _resolvable(avro: Any, column: Column) -> bool:
    """Whether at least one value of the written type is a value of the column's type."""
    if is_decimal(alone(avro)) and column.kind in ("bytes", "fixed") and column.logical is None:
        return False
    return any(
        (kind == "null" and column.nullable)
        or kind not in _PRIMITIVES | {"record", "enum", "fixed", "array", "map"}
        or column.kind in _PROMOTIONS.get(kind, {kind})
        for kind in _kinds(avro)
    )


def _kinds(avro: Any) -> set[str]:
    if isinstance(avro, list):
        return set().union(*(_kinds(branch) for branch in avro))
    return _kinds(avro["type"]) if isinstance(avro, dict) and "type" in avro else {str(avro)}
