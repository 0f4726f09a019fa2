"""A default in a schema's JSON in, the value that rows get from it out. The judge and all sinks use this rule.

Decimals, dates and times, uuids, enums and fixed are text as in files. Dates and times may also be integers in Avro's
encoding, decimals also numbers. Bytes are the UTF-8 of text."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from millrace.model.columns import Column, logical_type
from millrace.model.errors import Invalid
from millrace.model.fields import Field, field_of, spelled

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BITS = {"int": 31, "long": 63}
_LARGEST = {"float": 3.4028235677973366e38, "double": 1.7976931348623157e308}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})0*)?"
_TIME = re.compile(_CLOCK)
_TIMESTAMP = re.compile(rf"\d{{4}}-\d\d-\d\d[Tt ]{_CLOCK}([Zz]|[+-]\d\d(:?\d\d)?)?")
_EXACT = Context(prec=80)
_UUID = re.compile("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def stored_default(given: Column | Field) -> Any:
    """The default as `pyarrow.array` takes it for the Arrow type; None if there is no valid default."""
    field = field_of(given) if isinstance(given, Column) else given
    try:
        return None if field.default is None else stored_value(field, field.default)
    except Invalid:
        return None


def refuse_strange_defaults(columns: Iterable[Column]) -> None:
    """Refuses defaults, at any depth, that are not of their type."""
    for column in columns:
        _refuse_strange(field_of(column))


def _refuse_strange(field: Field) -> None:
    if field.default is not None:
        stored_value(field, field.default)
    if field.kind == "record":
        for part in field.inner_fields():
            _refuse_strange(part)
    elif field.kind in ("array", "map"):
        _refuse_strange(field.element())


def stored_value(field: Field, value: Any) -> Any:
    """The stored value for a JSON value. Refuses a value that is not of the field's type."""
    if value is None and field.nullable:
        return None
    try:
        return _READERS.get(logical_type(field.avro) or field.kind, _strange)(field, value)
    except (ValueError, OverflowError, InvalidOperation) as error:
        where = f" of {field.name!r}" if field.name else ""
        raise Invalid(
            f"The default{where} is {value!r:.60}, which is no {spelled(field.avro)}.", remedy="Give one of its type."
        ) from error


def _strange(field: Field, value: Any) -> Any:
    raise ValueError(value)


def _expect(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(value)
    return value


def _integer(field: Field, value: Any) -> int:
    limit = 1 << _BITS[field.kind]
    if not -limit <= _expect(int, value) < limit:
        raise ValueError(value)
    return int(value)


def _floating(field: Field, value: Any) -> float:
    number = float(_expect((int, float), value))
    if abs(number) > _LARGEST[field.kind]:
        raise ValueError(value)
    return number


def _text(field: Field, value: Any) -> str:
    if "\0" in _expect(str, value):
        raise ValueError(value)
    return str(value)


def _fixed(field: Field, value: Any) -> bytes:
    octets: bytes = _expect(str, value).encode()
    if len(octets) != field.avro["size"]:
        raise ValueError(value)
    return octets


def _enum(field: Field, value: Any) -> str:
    if _expect(str, value) not in field.avro["symbols"]:
        raise ValueError(value)
    return str(value)


def _uuid(field: Field, value: Any) -> str:
    return _matching(_UUID, value).string


def _matching(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    found = pattern.fullmatch(_expect(str, value))
    if found is None:
        raise ValueError(value)
    return found


def _decimal(field: Field, value: Any) -> Decimal:
    precision, scale = field.avro["precision"], field.avro.get("scale", 0)
    number = Decimal(str(_expect((str, int, float, Decimal), value)).strip())
    exact = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if number.is_finite() else Decimal(0)
    if exact != number or len(exact.as_tuple().digits) > precision:
        raise ValueError(value)
    return exact


def _date(field: Field, value: Any) -> date:
    if isinstance(value, int):
        return _EPOCH_DAY + timedelta(days=_expect(int, value))
    return date.fromisoformat(_matching(_DATE, value).string)


def _time(digits: int) -> Callable[[Field, Any], int]:
    def read(field: Field, value: Any) -> int:
        units = value if isinstance(value, int) else _units(_matching(_TIME, value), digits)
        if not 0 <= _expect(int, units) < 86_400 * 10**digits:
            raise ValueError(value)
        return int(units)

    return read


def _units(found: re.Match[str], digits: int) -> int:
    """A time of day in units of 10^-digits seconds."""
    hours, minutes, seconds, fraction = found.groups()
    if int(minutes) > 59 or int(seconds) > 59 or len((fraction or "").rstrip("0")) > digits:
        raise ValueError(found.string)
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * int(10**digits) + int((fraction or "").ljust(digits, "0")[:digits])


def _timestamp(micros: int) -> Callable[[Field, Any], datetime]:
    def read(field: Field, value: Any) -> datetime:
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=_expect(int, value) * micros)
        moment = datetime.fromisoformat(_matching(_TIMESTAMP, value).string.upper())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

    return read


def _array(field: Field, value: Any) -> list[Any]:
    return [stored_value(field.element(), item) for item in _expect(list, value)]


def _map(field: Field, value: Any) -> list[tuple[str, Any]]:
    return [(_text(field, key), stored_value(field.element(), item)) for key, item in _expect(dict, value).items()]


def _record(field: Field, value: Any) -> dict[str, Any]:
    given = _expect(dict, value)
    return {part.name: stored_value(part, given.get(part.name, part.default)) for part in field.inner_fields()}


_READERS: dict[str, Callable[[Field, Any], Any]] = {
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "boolean": lambda field, value: _expect(bool, value),
    "string": _text,
    "bytes": lambda field, value: _expect(str, value).encode(),
    "fixed": _fixed,
    "enum": _enum,
    "uuid": _uuid,
    "decimal": _decimal,
    "date": _date,
    "time-millis": _time(3),
    "time-micros": _time(6),
    "timestamp-millis": _timestamp(1000),
    "timestamp-micros": _timestamp(1),
    "array": _array,
    "map": _map,
    "record": _record,
}
