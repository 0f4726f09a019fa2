"""An Avro type in, the type that every sink stores out. Refuses a type that no sink can keep.

`millrace/arrow/types.py` gives each stored type its Arrow type."""

from dataclasses import dataclass
from typing import Any, TypeGuard

from millrace.model.errors import Invalid

MAX_DEPTH = 32
BOOLEAN, INT32, INT64, FLOAT32, FLOAT64 = "boolean", "int32", "int64", "float32", "float64"
BINARY, STRING, DATE, TIMESTAMP, DECIMAL = "binary", "string", "date", "timestamp", "decimal"
LIST, MAP, STRUCT = "list", "map", "struct"

Avro = Any  # a JSON value that has passed `parse_columns`


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of a struct, the element of a list or the value of a map."""

    name: str
    type: "StoredType"
    nullable: bool


@dataclass(frozen=True, slots=True)
class StoredType:
    """`kind` is one of the constants above. A decimal has `precision` and `scale`; a list, map or struct has `parts`."""

    kind: str
    precision: int = 0
    scale: int = 0
    parts: tuple[StoredField, ...] = ()


_PRIMITIVE = {
    "boolean": StoredType(BOOLEAN),
    "int": StoredType(INT32),
    "long": StoredType(INT64),
    "float": StoredType(FLOAT32),
    "double": StoredType(FLOAT64),
    "bytes": StoredType(BINARY),
    "string": StoredType(STRING),
}
LOGICAL = {
    ("int", "date"): StoredType(DATE),
    ("int", "time-millis"): StoredType(INT32),
    ("long", "time-micros"): StoredType(INT64),
    ("long", "timestamp-millis"): StoredType(TIMESTAMP),
    ("long", "timestamp-micros"): StoredType(TIMESTAMP),
}


def checked_field(field: object, where: str) -> dict[str, Any]:
    """A column, or a field of a record, with a name that readers can tell and a type."""
    if (
        not isinstance(field, dict)
        or not isinstance(field.get("name"), str)
        or not field["name"]
        or "type" not in field
    ):
        raise Invalid(f"{field!r:.80} in {where} is not an Avro field.", remedy='A field has a "name" and a "type".')
    name = field["name"]
    if len(name) > 255 or any(ord(letter) < 32 for letter in name):
        raise Invalid(f"{name!r:.60} in {where} cannot be a name.", remedy="Use up to 255 printable characters.")
    aliases = field.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise Invalid(f"The aliases of {name!r} in {where} are {aliases!r:.60}.", remedy="Give a list of former names.")
    return field


def without_null(avro: Avro, where: str) -> tuple[Avro, bool]:
    if not isinstance(avro, list):
        return avro, False
    branches = [branch for branch in avro if branch != "null"]
    if len(branches) != 1:
        raise Invalid(
            f"Column {where!r} is a union of {len(branches)} types.",
            remedy='Only ["null", T] unions can be kept in a sink.',
        )
    return branches[0], len(branches) < len(avro)


def stored_type(avro: Avro, where: str, depth: int = 0) -> StoredType:
    """Refuses a type that is unknown or incomplete. `where` names the column in messages."""
    if depth > MAX_DEPTH:
        raise Invalid(f"Column {where!r} is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(avro, str):
        if avro not in _PRIMITIVE:
            raise Invalid(f"Column {where!r} has the unknown type {avro!r}.", remedy=f"Known: {', '.join(_PRIMITIVE)}.")
        return _PRIMITIVE[avro]
    if not isinstance(avro, dict) or not isinstance(avro.get("type"), (str, dict)):
        raise Invalid(f"Column {where!r} has no readable Avro type: {avro!r:.80}.")
    if not isinstance(avro.get("logicalType"), str | None):
        raise Invalid(f"The logicalType of column {where!r} is {avro['logicalType']!r:.60}.", remedy="Give its name.")
    if isinstance(avro["type"], dict):
        return stored_type(avro["type"], where, depth + 1)
    return _complex_type(avro, avro["type"], where, depth)


def _complex_type(avro: dict[str, Any], kind: str, where: str, depth: int) -> StoredType:
    logical = avro.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro, where)
    if (kind, str(logical)) in LOGICAL:
        return LOGICAL[kind, str(logical)]
    if kind == "enum":
        symbols = avro.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
            raise Invalid(f"Column {where!r} is an enum without symbols.")
        return StoredType(STRING)
    if kind == "fixed":
        if not _is_whole(avro.get("size")) or avro["size"] < 0:
            raise Invalid(f"Column {where!r} is a fixed without a size.")
        return StoredType(BINARY)
    return _nested_type(avro, kind, where, depth)


def _nested_type(avro: dict[str, Any], kind: str, where: str, depth: int) -> StoredType:
    if kind == "array":
        return StoredType(LIST, parts=(_nested("element", avro.get("items"), where, depth),))
    if kind == "map":
        return StoredType(MAP, parts=(_nested("value", avro.get("values"), where, depth),))
    if kind == "record":
        fields = avro.get("fields")
        if not isinstance(fields, list) or not fields:
            raise Invalid(f"Column {where!r} is a record without fields.")
        parts = [checked_field(field, f"column {where!r}") for field in fields]
        return StoredType(
            STRUCT, parts=tuple(_nested(part["name"], part["type"], f"{where}.{part['name']}", depth) for part in parts)
        )
    return stored_type(kind, where, depth + 1)


def _nested(name: str, avro: Avro, where: str, depth: int) -> StoredField:
    inner, nullable = without_null(avro, where)
    return StoredField(name, stored_type(inner, where, depth + 1), nullable)


def _decimal(avro: dict[str, Any], where: str) -> StoredType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not _is_whole(precision) or not _is_whole(scale) or not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise Invalid(
            f"Column {where!r} is a decimal({precision},{scale}).", remedy="Precision is 1 to 38, scale 0 to precision."
        )
    return StoredType(DECIMAL, precision, scale)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
