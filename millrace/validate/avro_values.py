"""Avro values as a file holds them in, an Arrow array out. Nothing is judged here, so one bad value does not affect others.

Text that is not UTF-8 comes as surrogates and is turned back into its bytes. Decimals become text."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.types as pat
from fastavro.read import LOGICAL_READERS

from millrace.formats.avro_types import alone, held_type, is_decimal, kind_and_logical
from millrace.model.stored_types import Avro

# How fastavro keeps octets that are not UTF-8.
ESCAPED = "surrogateescape"

Change = Callable[[Any], Any]

_INT = 1 << 31
# Python refuses to write integers of more than about 4300 digits. No decimal has a tenth of that.
_LONGEST_NUMBER = 256
_USUAL_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def array_of(avro: Avro, values: list[Any], where: str) -> pa.Array:
    """The values of a column, by the writer's type."""
    kind = held_type(avro, where)
    change = _changed(avro, _as_column)
    if change is not None:
        values = [None if value is None else change(value) for value in values]
    try:
        return pa.array(values, kind)
    except (UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array([_mended(kind, value) for value in values], _as_bytes(kind)).view(kind)


def spoken(avro: Avro, values: list[Any]) -> list[Any]:
    """Values of fields that the table does not know, as Python values where Python has one, else as in the file."""
    change = _changed(avro, _as_python)
    return values if change is None else [None if value is None else change(value) for value in values]


def readable(text: str) -> str:
    return text.encode(errors=ESCAPED).decode(errors="replace")


def _changed(avro: Avro, at_leaf: Callable[[Avro], Change | None]) -> Change | None:
    """The function that converts values of a type. None for most types: they need no step per value."""
    avro = alone(avro)
    kind = avro.get("type") if isinstance(avro, dict) else None
    if kind == "record":
        inside = {field["name"]: _changed(field["type"], at_leaf) for field in avro["fields"]}
        return _each_field({name: change for name, change in inside.items() if change})
    if kind in ("array", "map"):
        change = _changed(avro["items" if kind == "array" else "values"], at_leaf)
        if change is None:
            return None
        if kind == "array":
            return lambda items: [_if_any(change, item) for item in items]
        return lambda entries: {key: _if_any(change, value) for key, value in entries.items()}
    return at_leaf(avro)


def _each_field(changes: dict[str, Change]) -> Change | None:
    def change(record: Any) -> Any:
        return record | {name: _if_any(changes[name], record[name]) for name in changes}

    return change if changes else None


def _if_any(change: Change, value: Any) -> Any:
    return None if value is None else change(value)


def _as_column(avro: Avro) -> Change | None:
    if is_decimal(avro):
        scale = avro.get("scale", 0)
        return lambda raw: _decimal_text(raw, scale)
    return _uuid_text if kind_and_logical(avro) == ("string", "uuid") else None


def _decimal_text(raw: bytes, scale: int) -> str:
    if len(raw) > _LONGEST_NUMBER:
        return f"0x{raw[:_LONGEST_NUMBER].hex()}…"
    number = int.from_bytes(raw, signed=True)
    digits = str(abs(number)).zfill(scale + 1)
    point = len(digits) - scale
    text = f"{digits[:point]}.{digits[point:]}" if scale else digits
    return f"-{text}" if number < 0 else text


def _uuid_text(text: str) -> str:
    try:
        return text if _USUAL_UUID(text) else str(UUID(text))
    except ValueError:
        return text


def _as_python(avro: Avro) -> Change | None:
    kind, logical = kind_and_logical(avro)
    read = LOGICAL_READERS.get(f"{kind}-{logical}")
    if read is None:
        return None

    def change(value: Any) -> Any:
        try:
            # fastavro would round a decimal that has more digits than its type.
            return Decimal(_decimal_text(value, avro.get("scale", 0))) if is_decimal(avro) else read(value, avro, None)
        except (ValueError, ArithmeticError):
            return value

    return change


def _mended(kind: pa.DataType, value: Any) -> Any:
    """A value that Arrow always takes: text as bytes; a number of more than 32 bits is limited to the type's range."""
    if value is None:
        return None
    if pat.is_string(kind):
        return value.encode(errors=ESCAPED)
    if pat.is_date32(kind) or pat.is_time32(kind):
        return max(-_INT, min(value, _INT - 1))
    return _mended_inside(kind, value) if pat.is_nested(kind) else value


def _mended_inside(kind: pa.DataType, value: Any) -> Any:
    if pat.is_struct(kind):
        return {field.name: _mended(field.type, value[field.name]) for field in kind}
    if pat.is_list(kind):
        return [_mended(kind.value_type, item) for item in value]
    return [(key.encode(errors=ESCAPED), _mended(kind.item_type, item)) for key, item in value.items()]


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    if pat.is_struct(kind):
        return pa.struct([(field.name, _as_bytes(field.type)) for field in kind])
    if pat.is_list(kind):
        return pa.list_(_as_bytes(kind.value_type))
    if pat.is_map(kind):
        return pa.map_(pa.binary(), _as_bytes(kind.item_type))
    return pa.binary() if pat.is_string(kind) else kind
