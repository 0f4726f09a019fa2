"""Avro types: short names and Arrow types in, Avro types out; and a type in, its name for people out."""

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from millrace.arrow.types import is_list
from millrace.model.stored_types import Avro

MAX_PRECISION = 38

_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-micros": "long",
    "uuid": "string",
}
_INT_BITS = 32
_UNSIGNED_LONG_DIGITS = 20


def avro_type(name: str) -> Avro:
    """The Avro type of a short name: int, date, uuid …"""
    return {"type": _LOGICAL[name], "logicalType": name} if name in _LOGICAL else name


def decimal_type(precision: int, scale: int) -> Avro:
    return {"type": "bytes", "logicalType": "decimal", "precision": max(1, precision), "scale": scale}


def shown_type(avro: Avro) -> str:
    """A type as text for people: int, decimal(21,0), timestamp-micros, array of string."""
    if isinstance(avro, list):
        return " or ".join(map(shown_type, avro))
    if not isinstance(avro, dict):
        return str(avro)
    if isinstance(avro.get("type"), dict):
        return shown_type(avro["type"])
    return _shown_complex(avro)


def _shown_complex(avro: dict[str, Any]) -> str:
    kind, logical = str(avro.get("type")), avro.get("logicalType")
    if logical == "decimal":
        return f"decimal({avro.get('precision')},{avro.get('scale', 0)})"
    if logical:
        return str(logical)
    if kind == "array":
        return f"array of {shown_type(avro.get('items'))}"
    if kind == "map":
        return f"map of {shown_type(avro.get('values'))}"
    return f"fixed({avro.get('size')})" if kind == "fixed" else kind


def avro_of_arrow(kind: pa.DataType, name: str) -> Avro | None:
    """The type that holds the values; None if no table can. `name` is used for the named types inside: records and fixed."""
    if pat.is_dictionary(kind):
        return avro_of_arrow(kind.value_type, name)
    if pat.is_nested(kind):
        return _nested(kind, name)
    if pat.is_integer(kind):
        return _integer(kind)
    if pat.is_decimal(kind):
        fits = kind.precision <= MAX_PRECISION and 0 <= kind.scale <= kind.precision
        return decimal_type(kind.precision, kind.scale) if fits else "string"
    if pat.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "size": kind.byte_width}
    return next((avro for is_kind, avro in _PLAIN if is_kind(kind)), None)


def _integer(kind: pa.DataType) -> Avro:
    if pat.is_uint64(kind):
        return decimal_type(_UNSIGNED_LONG_DIGITS, 0)
    return "int" if kind.bit_width < _INT_BITS or pat.is_int32(kind) else "long"


def _nested(kind: pa.DataType, name: str) -> Avro | None:
    if pat.is_struct(kind):
        return _record(kind, name)
    if pat.is_map(kind):
        values = _optional(kind.item_field, name)
        keyed_by_text = pat.is_string(kind.key_type) or pat.is_large_string(kind.key_type)
        return {"type": "map", "values": values} if values is not None and keyed_by_text else None
    if is_list(kind):
        items = _optional(kind.value_field, name)
        return None if items is None else {"type": "array", "items": items}
    return None


def _record(kind: pa.StructType, name: str) -> Avro | None:
    fields: list[dict[str, Any]] = []
    for field in kind:
        inner = _optional(field, f"{name}_{len(fields) + 1}")
        if inner is None:
            return None
        fields.append({"name": field.name, "type": inner})
    return {"type": "record", "name": name, "fields": fields} if fields else None


def _optional(field: pa.Field, name: str) -> Avro | None:
    avro = avro_of_arrow(field.type, name)
    return ["null", avro] if avro is not None and field.nullable else avro


_PLAIN = (
    (pat.is_null, "string"),
    (pat.is_boolean, "boolean"),
    (lambda kind: pat.is_float16(kind) or pat.is_float32(kind), "float"),
    (pat.is_float64, "double"),
    (lambda kind: pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind), "string"),
    (lambda kind: pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind), "bytes"),
    (pat.is_date, avro_type("date")),
    (pat.is_timestamp, avro_type("timestamp-micros")),
    (pat.is_time32, avro_type("time-millis")),
    (pat.is_time64, avro_type("time-micros")),
    (pat.is_duration, "string"),
)
