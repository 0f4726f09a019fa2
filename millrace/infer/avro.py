"""Avro types by short names: a name in, the Avro type out; and a type in, its name for people out."""

from typing import Any

from millrace.model.stored_types import Avro

MAX_PRECISION = 38

_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-micros": "long",
    "uuid": "string",
}


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
