"""An expression and a chunk's columns in; true, false or unknown for each row out. Arrow does all the work.

The columns' types alone decide whether numbers are exact (decimals) or doubles, never the values: a row is judged the same
whatever the other rows are."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.declare.expression_types import read_time
from millrace.model.expressions import Call, ColumnName, Expression, Literal

MOST_DIGITS = 38
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_COMPARE: dict[str, Callable[..., Any]] = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_TEXT: dict[str, Callable[..., Any]] = {
    "lower": pc.utf8_lower, "upper": pc.utf8_upper, "trim": pc.utf8_trim_whitespace, "length": pc.utf8_length,
}  # fmt: skip
_FINDING: dict[str, Callable[..., Any]] = {
    "starts_with": pc.starts_with, "ends_with": pc.ends_with, "contains": pc.match_substring,
    "matches": pc.match_substring_regex,
}  # fmt: skip


def evaluate(expression: Expression, columns: Mapping[str, pa.Array]) -> Any:
    """An Arrow array with one entry per row, or a scalar if the expression names no column."""
    match expression:
        case ColumnName(name):
            return columns[name]
        case Literal(value):
            return literal(value)
        case Call(what, parts):
            return _call(what, [evaluate(part, columns) for part in parts], parts)


def literal(value: Any) -> pa.Scalar:
    """Numbers exactly as they are written, where that is possible."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return pa.scalar(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return pa.scalar(value)
    exact = Decimal(repr(value)).as_tuple()
    assert isinstance(exact.exponent, int)
    fits = len(exact.digits) + max(exact.exponent, 0) <= MOST_DIGITS and -exact.exponent <= MOST_DIGITS
    return pa.scalar(Decimal(repr(value))) if fits else pa.scalar(float(value))


def _call(what: str, given: list[Any], parts: tuple[Expression, ...]) -> Any:
    if what in ("and", "or"):
        joined = given[0]
        for value in given[1:]:
            joined = (pc.and_kleene if what == "and" else pc.or_kleene)(_truth(joined), _truth(value))
        return joined
    if what in _FINDING:
        wanted = parts[1].value if isinstance(parts[1], Literal) else ""
        return _FINDING[what](_known(given[0], pa.string()), wanted)
    if what in _COMPARE:
        return _COMPARE[what](*comparable(*given))
    if what in _ARITHMETIC:
        return _counted(what, *given)
    return _ONE[what](given)


def _in(given: list[Any]) -> Any:
    found = None
    for value in given[1:]:
        same = pc.equal(*comparable(given[0], value))
        found = same if found is None else pc.or_kleene(found, same)
    return found


def _truth(value: Any) -> Any:
    return _known(value, pa.bool_())


def _known(value: Any, kind: pa.DataType) -> Any:
    return value.cast(kind) if pa.types.is_null(value.type) else value


def comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Both values as one type that Arrow can compare."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        kind = right.type if pa.types.is_null(left.type) else left.type
        kind = pa.bool_() if pa.types.is_null(kind) else kind
        return _known(left, kind), _known(right, kind)
    for one, other in ((left, right), (right, left)):
        if pa.types.is_temporal(one.type) and pa.types.is_string(other.type):
            moment = _time(other.as_py(), one.type)
            return (left, moment) if other is right else (moment, right)
    if _is_number(left) and _is_number(right) and left.type != right.type:
        return _alike(left, right)
    return left, right


def _time(text: str, kind: pa.DataType) -> pa.Scalar:
    moment = read_time(text)
    if pa.types.is_date(kind):
        return pa.scalar(moment.date() if isinstance(moment, datetime) else moment, kind)
    assert isinstance(moment, datetime)
    return pa.scalar(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment, kind)


def _is_number(value: Any) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(value.type) for is_kind in kinds)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both as decimals of one scale if all digits fit and neither is a double; else as doubles."""
    if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
        (whole, scale), (other_whole, other_scale) = _digits(left.type), _digits(right.type)
        digits, scale = max(whole, other_whole), max(scale, other_scale)
        if digits + scale <= MOST_DIGITS:
            kind = pa.decimal128(digits + scale, scale)
            return pc.cast(left, kind), pc.cast(right, kind)
    return _double(left), _double(right)


def _double(value: Any) -> Any:
    """The nearest double. Digits that a double cannot hold are lost."""
    return pc.cast(value, pa.float64(), safe=False)


def _exact(value: Any) -> Any:
    whole, scale = _digits(value.type)
    return pc.cast(value, pa.decimal128(whole + scale, scale))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """The digits before and behind the point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[kind.bit_width], 0


def _counted(what: str, left: Any, right: Any) -> Any:
    left, right = _known(left, pa.int64()), _known(right, pa.int64())
    floats = pa.types.is_floating(left.type) or pa.types.is_floating(right.type)
    if floats or what == "/" or sum(_digits(left.type) + _digits(right.type)) + 2 > MOST_DIGITS:
        left, right = _double(left), _double(right)
        if what == "/":
            right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
        return _ARITHMETIC[what](left, right)
    return _ARITHMETIC[what](_exact(left), _exact(right))


def _signed(function: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    """Widens first: the smallest integer of a type has no negative in the same type."""

    def apply(given: list[Any]) -> Any:
        value = _known(given[0], pa.int64())
        return function(value.cast(pa.decimal128(19, 0)) if pa.types.is_integer(value.type) else value)

    return apply


def _coalesce(given: list[Any]) -> Any:
    if all(pa.types.is_null(value.type) for value in given):
        return given[0]
    return pc.coalesce(*comparable(*given))


def _of_text(function: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda given: function(_known(given[0], pa.string()))


_ONE: dict[str, Callable[[list[Any]], Any]] = {
    "not": lambda given: pc.invert(_truth(given[0])),
    "is_null": lambda given: pc.is_null(given[0]),
    "in": _in,
    "neg": _signed(pc.negate),
    "abs": _signed(pc.abs),
    "coalesce": _coalesce,
    **{name: _of_text(function) for name, function in _TEXT.items()},
}
