"""Columns of a table: an Avro record schema in, typed columns out. Refuses what no sink could keep."""

from dataclasses import dataclass
from typing import Any, TypeGuard

import pyarrow as pa

from millrace.model.errors import Invalid

MAX_COLUMNS = 2000
MAX_DEPTH = 32
DELETED_COLUMN = "_deleted"
RESCUED_COLUMN = "_rescued"
RESERVED = ("_version", "_import", "_row", DELETED_COLUMN, RESCUED_COLUMN)

Avro = Any  # a JSON value that has passed `parse_columns`

_PRIMITIVE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.int32(),
    ("long", "time-micros"): pa.int64(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column. `avro` is its type without the null branch; `arrow` is how it is stored."""

    name: str
    avro: Avro
    nullable: bool
    arrow: pa.DataType
    default: Any = None
    aliases: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The Avro type's name: 'int', 'string', 'record', 'array' …"""
        return self.avro if isinstance(self.avro, str) else str(self.avro["type"])

    @property
    def logical(self) -> str | None:
        """The logical type, where Avro gives one a meaning on this kind."""
        if isinstance(self.avro, str):
            return None
        logical = self.avro.get("logicalType")
        known = (self.kind, logical) in _LOGICAL or (logical == "decimal" and self.kind in ("bytes", "fixed"))
        return logical if known or (logical == "uuid" and self.kind == "string") else None


def parse_columns(schema: object) -> tuple[Column, ...]:
    """The columns of an Avro record schema."""
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise Invalid("The schema is not an Avro record.", remedy='Write {"type": "record", "name": …, "fields": […]}.')
    fields = schema["fields"]
    if not 1 <= len(fields) <= MAX_COLUMNS:
        raise Invalid(f"The schema has {len(fields)} fields.", remedy=f"Declare 1 to {MAX_COLUMNS}.")
    columns = tuple(_column(field) for field in fields)
    refuse_repeated([column.name for column in columns])
    return columns


def refuse_repeated(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise Invalid(
                f"Column {name!r} is declared twice; names that differ only in case are the same.", remedy="Rename one."
            )
        if name.lower() in RESERVED:
            raise Invalid(f"Column {name!r} is reserved for Millrace.", remedy="Choose another name.")
        seen.add(name.lower())


def _column(field: object) -> Column:
    field = _checked_field(field, "the schema")
    name = field["name"]
    avro, nullable = _without_null(field["type"], name)
    if isinstance(avro, str) and "logicalType" in field:
        # The seeds put logicalType beside the type instead of inside it; both spellings mean the same.
        avro = {"type": avro, **{key: field[key] for key in ("logicalType", "precision", "scale") if key in field}}
    return Column(
        name,
        avro,
        nullable,
        arrow_type(avro, name),
        field.get("default"),
        tuple(field.get("aliases", ())),
    )


def _checked_field(field: object, where: str) -> dict[str, Any]:
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


RESCUED = Column(RESCUED_COLUMN, "string", True, pa.string())


def _without_null(avro: Avro, where: str) -> tuple[Avro, bool]:
    if not isinstance(avro, list):
        return avro, False
    branches = [branch for branch in avro if branch != "null"]
    if len(branches) != 1:
        raise Invalid(
            f"Column {where!r} is a union of {len(branches)} types.",
            remedy='Only ["null", T] unions can be kept in a sink.',
        )
    return branches[0], len(branches) < len(avro)


def arrow_type(avro: Avro, where: str, depth: int = 0) -> pa.DataType:
    """How values of an Avro type are held in Arrow, Parquet and Delta."""
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
        return arrow_type(avro["type"], where, depth + 1)
    return _complex_type(avro, avro["type"], where, depth)


def _complex_type(avro: dict[str, Any], kind: str, where: str, depth: int) -> pa.DataType:
    logical = avro.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro, where)
    if (kind, str(logical)) in _LOGICAL:
        return _LOGICAL[kind, str(logical)]
    if kind == "enum":
        symbols = avro.get("symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
            raise Invalid(f"Column {where!r} is an enum without symbols.")
        return pa.string()
    if kind == "fixed":
        if not _is_whole(avro.get("size")) or avro["size"] < 0:
            raise Invalid(f"Column {where!r} is a fixed without a size.")
        return pa.binary()
    return _nested_type(avro, kind, where, depth)


def _nested_type(avro: dict[str, Any], kind: str, where: str, depth: int) -> pa.DataType:
    if kind == "array":
        return pa.list_(_nested("element", avro.get("items"), where, depth))
    if kind == "map":
        return pa.map_(pa.string(), _nested("value", avro.get("values"), where, depth))
    if kind == "record":
        fields = avro.get("fields")
        if not isinstance(fields, list) or not fields:
            raise Invalid(f"Column {where!r} is a record without fields.")
        parts = [_checked_field(field, f"column {where!r}") for field in fields]
        return pa.struct([_nested(part["name"], part["type"], f"{where}.{part['name']}", depth) for part in parts])
    return arrow_type(kind, where, depth + 1)


def _nested(name: str, avro: Avro, where: str, depth: int) -> pa.Field:
    inner, nullable = _without_null(avro, where)
    return pa.field(name, arrow_type(inner, where, depth + 1), nullable)


def _decimal(avro: dict[str, Any], where: str) -> pa.DataType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not _is_whole(precision) or not _is_whole(scale) or not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise Invalid(
            f"Column {where!r} is a decimal({precision},{scale}).", remedy="Precision is 1 to 38, scale 0 to precision."
        )
    return pa.decimal128(precision, scale)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The declared columns as stored, without the platform's own."""
    return pa.schema([pa.field(column.name, column.arrow, column.nullable) for column in columns])


OWN_COLUMNS = pa.schema(
    [
        pa.field("_version", pa.int64(), False),
        pa.field("_import", pa.string(), False),
        pa.field("_row", pa.int64(), False),
    ]
)


def stored_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The declared columns followed by the platform's own: the shape of every sink."""
    return pa.schema([*arrow_schema(columns), *OWN_COLUMNS])
