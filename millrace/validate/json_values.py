"""One parsed JSON value in, the Python value that is stored for its Avro type out, or the reason why it does not fit.

Types are strict: an int is a JSON integer, a string a JSON string; bytes are text (its UTF-8). Decimals, dates and times,
uuids, enums and fixed are text as in CSV. Dates and times may also be integers in Avro's encoding, decimals also numbers.
Unknown fields of a nested record are ignored, missing fields take their default."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from millrace.model.columns import column_of, logical_type
from millrace.model.fields import bare
from millrace.model.stored_types import Avro
from millrace.validate.encoded import ENCODED, typed_integers
from millrace.validate.expected import called
from millrace.validate.text import Outcome, typed_text

_INTEGERS = {"int": 31, "long": 63}
# Numbers from here on round to infinity: half a step beyond the largest number.
_LIMIT = {"float": (2**25 - 1) << 103, "double": (2**54 - 1) << 970}
_AS_TEXT = ENCODED | {"decimal", "uuid", "enum", "fixed"}


class Misfit(Exception):
    """A value that does not fit its type: the broken rule and a message."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message


def unwrapped(avro: Avro) -> tuple[Avro, bool]:
    """A type without its null branch, and whether it had one."""
    if not isinstance(avro, list):
        return bare(avro), False
    return bare(next(branch for branch in avro if branch != "null")), "null" in avro


def fit(avro: Avro, value: Any, where: str = "") -> Any:
    """The value as `pa.array` takes it for the type's Arrow type. `where` is the path inside the cell, for messages."""
    kind = avro if isinstance(avro, str) else avro["type"]
    name = logical_type(avro) or kind
    if name in _AS_TEXT:
        return _logical(avro, name, value, where)
    return _KINDS[kind](avro, value, where)


def _wrong(value: Any, name: str, where: str) -> Misfit:
    return Misfit("type", f"{_at(where)}{_show(value)} is not {called(name)}")


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _show(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value if len(value) <= 80 else value[:80] + '…'}'"
    text = as_text(value)
    return text if len(text) <= 80 else text[:80] + "…"


def as_text(value: Any) -> str:
    """A parsed value as text for messages: a string unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(value)
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:
        return "…"  # It is nested too deep to be written, or contains a number of more than 64 bits.


def _integer(avro: Avro, value: Any, where: str) -> int:
    kind = avro if isinstance(avro, str) else avro["type"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, kind, where)
    limit = 1 << _INTEGERS[kind]
    if not -limit <= value < limit:
        raise Misfit("range", f"{_at(where)}{value} does not fit {kind} ({-limit} to {limit - 1})")
    return value


def _floating(avro: Avro, value: Any, where: str) -> float:
    kind = avro if isinstance(avro, str) else avro["type"]
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        raise _wrong(value, kind, where)
    if not -_LIMIT[kind] < value < _LIMIT[kind]:
        raise Misfit("range", f"{_at(where)}{value} does not fit {kind}")
    return float(value)


def _text(avro: Avro, value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "string", where)
    if "\0" in value:
        raise Misfit("nul", f"{_at(where)}contains a NUL character")
    return value


def _bytes(avro: Avro, value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong(value, "string", where)
    return value.encode()


def _boolean(avro: Avro, value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "boolean", where)
    return value


def _logical(avro: Avro, name: str, value: Any, where: str) -> Any:
    typed = column_of(where, avro)
    if name in ENCODED and isinstance(value, int) and not isinstance(value, bool):
        return _sole(typed_integers(typed, pa.array([_integer("long", value, where)])), where)
    if name == "decimal" and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _wrong(value, name, where)
    if "\0" in value and name != "fixed":
        raise Misfit("nul", f"{_at(where)}contains a NUL character")
    return _sole(typed_text(typed, pa.array([value])), where)


def _sole(outcome: Outcome, where: str) -> Any:
    values, faults = outcome
    if faults:
        raise Misfit(faults[0].rule, f"{_at(where)}{faults[0].messages[0].as_py()}")
    return values[0].as_py()


def _array(avro: Avro, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, "array", where)
    items, nullable = unwrapped(avro["items"])
    return [_inner(items, nullable, item, f"{where}[{place}]") for place, item in enumerate(value)]


def _map(avro: Avro, value: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _wrong(value, "map", where)
    values, nullable = unwrapped(avro["values"])
    return [(_text(avro, key, where), _inner(values, nullable, item, f"{where}.{key}")) for key, item in value.items()]


def _record(avro: Avro, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(value, "record", where)
    record = {}
    for field in avro["fields"]:
        name, (inner, nullable) = field["name"], unwrapped(field["type"])
        given = value[name] if name in value else _called_before(avro, field, value)
        record[name] = _inner(inner, nullable, given, f"{where}.{name}" if where else name)
    return record


def _called_before(avro: Avro, field: dict[str, Any], value: dict[str, Any]) -> Any:
    """The field's value under a former name that no other field has, else its default."""
    former = [alias for alias in field.get("aliases", ()) if alias in value]
    taken = {other["name"] for other in avro["fields"]} if former else ()
    return next((value[alias] for alias in former if alias not in taken), field.get("default"))


def _inner(avro: Avro, nullable: bool, value: Any, where: str) -> Any:
    if value is None:
        if nullable:
            return None
        raise Misfit("required", f"{where} is required and has no value")
    return fit(avro, value, where)


_KINDS: dict[str, Callable[[Avro, Any, str], Any]] = {
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "string": _text,
    "bytes": _bytes,
    "boolean": _boolean,
    "array": _array,
    "map": _map,
    "record": _record,
}
