"""Leaves out data files that cannot have a row that is asked for: conditions and a file's statistics in, yes or no out. In
doubt a file is read. Any engine may have written the statistics, and some round them: bounds are taken a little wider."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from millrace.lake.condition import GREATER, LESS, Alternatives, Condition

_SLACK, _SINGLE_SLACK, _LEAST_SLACK = Decimal("1e-9"), Decimal("1e-5"), Decimal("1e-30")
# Some writers cut timestamps off at milliseconds.
_CUT_MICROSECONDS = 1000
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?Z?")

Ordered = Any  # a Decimal, a text or a number of microseconds


def may_have(stats: str | None, columns: Mapping[str, pa.DataType], wanted: Alternatives) -> bool:
    """Whether a file with these statistics may have such a row. `columns` are those of the table, by their lower-case
    names."""
    try:
        known = orjson.loads(stats) if stats else {}
        return any(all(_is_possible(known, columns, one) for one in conditions) for conditions in wanted)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return True


def _is_possible(stats: Mapping[str, Any], columns: Mapping[str, pa.DataType], condition: Condition) -> bool:
    kind = columns.get(condition.column.lower())
    least = _of_column(stats.get("minValues"), condition.column)
    greatest = _of_column(stats.get("maxValues"), condition.column)
    if kind is None or least is None or greatest is None:
        return True
    bounds = _bounds(kind, least, greatest)
    values = [_value(kind, value) for value in condition.values]
    if bounds is None or None in values:
        return True
    first, last = bounds
    if condition.comparison == GREATER and pa.types.is_floating(kind):
        # NaN is greater than all numbers, and the statistics of some writers leave it out.
        return True
    if condition.comparison == LESS:
        return bool(first <= values[0])
    if condition.comparison == GREATER:
        return bool(values[0] <= last)
    return any(first <= value <= last for value in values)


def _of_column(values: Mapping[str, Any] | None, column: str) -> Any:
    """SQL's names ignore case. If two differ in case only, none is meant."""
    found = [value for name, value in (values or {}).items() if name.lower() == column.lower()]
    return found[0] if len(found) == 1 else None


def _bounds(kind: pa.DataType, least: Any, greatest: Any) -> tuple[Ordered, Ordered] | None:
    if _is_number(kind):
        return _widened(kind, least, -1), _widened(kind, greatest, 1)
    if pa.types.is_timestamp(kind):
        start, end = _microseconds(least), _microseconds(greatest)
        return None if start is None or end is None else (start, end + _CUT_MICROSECONDS)
    if pa.types.is_date(kind):
        return (least, greatest) if _DAY.fullmatch(least) and _DAY.fullmatch(greatest) else None
    is_text = pa.types.is_string(kind) and isinstance(least, str) and isinstance(greatest, str)
    return (least, greatest) if is_text else None


def _widened(kind: pa.DataType, bound: Any, direction: int) -> Decimal:
    exact = Decimal(repr(bound))
    if isinstance(bound, int):
        return exact
    slack = _SINGLE_SLACK if pa.types.is_float32(kind) else _SLACK
    return exact + direction * (abs(exact) * slack + _LEAST_SLACK)


def _value(kind: pa.DataType, value: Decimal | str) -> Ordered | None:
    if isinstance(value, Decimal):
        return value if _is_number(kind) else None
    if pa.types.is_timestamp(kind):
        return _microseconds(value)
    if pa.types.is_date(kind):
        return value if _DAY.fullmatch(value) else None
    return value if pa.types.is_string(kind) else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _microseconds(text: str) -> int | None:
    if not _MOMENT.fullmatch(text):
        return None
    since = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
