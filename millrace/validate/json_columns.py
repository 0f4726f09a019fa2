"""The parsed JSON values of one column in, its typed values out. A value of the wrong type becomes null and a fault.

The rules are those of json_values, applied to a whole column. Only cells of an unexpected type are checked one by one. Text
is read as the column is written; a number or boolean may be text if the column says how that is written."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.model.written import AS_USUAL
from millrace.validate.cells import is_nested, one_by_one, without_nul
from millrace.validate.encoded import ENCODED, typed_integers
from millrace.validate.expected import meaning
from millrace.validate.faults import CellFault, RowFault, blanked, indices, listed, worded
from millrace.validate.json_values import Misfit, as_text, fit
from millrace.validate.text import Outcome, typed_text

_NUMBERS = frozenset({int, float, Decimal})
_EXPECTED: dict[str, frozenset[type]] = {
    "int": frozenset({int}),
    "long": frozenset({int}),
    "float": _NUMBERS,
    "double": _NUMBERS,
    "boolean": frozenset({bool}),
    "decimal": frozenset({str}) | _NUMBERS,
}
_TEXT = frozenset({str})
_TEXT_OR_INTEGER = frozenset({str, int})


def typed_values(column: Column, values: Sequence[Any]) -> Outcome:
    """One value per row; None where the row has none."""
    if is_nested(column):
        return one_by_one(column, values, lambda value: fit(column.avro, value))
    name = meaning(column)
    known = _EXPECTED.get(name, _TEXT_OR_INTEGER if name in ENCODED else _TEXT)
    values, faults = _without_strangers(column, values, known | _TEXT if _has_own_text(column, name) else known)
    typed, found = _typed(column, name, values)
    return typed, faults + found


def _has_own_text(column: Column, name: str) -> bool:
    """Whether numbers or booleans of the column may also be text, because it says how they are written."""
    if name == "boolean":
        return column.written.has_own_booleans
    return column.written.has_own_numbers


def _without_strangers(
    column: Column, values: Sequence[Any], expected: frozenset[type]
) -> tuple[Sequence[Any], list[RowFault]]:
    strangers = set(map(type, values)) - expected - {type(None)}
    if not strangers:
        return values, []
    kept, found = list(values), []
    for row, value in enumerate(values):
        if type(value) in strangers:
            kept[row] = None
            found.append(_stranger(column, row, value))
    return kept, listed(found)


def _stranger(column: Column, row: int, value: Any) -> CellFault:
    try:
        fit(column.avro, value)
    except Misfit as misfit:
        return CellFault(row, column.name, misfit.rule, misfit.message, as_text(value))
    raise AssertionError(f"{value!r} is accepted by itself and refused in its column")


def _typed(column: Column, name: str, values: Sequence[Any]) -> Outcome:
    if _has_own_text(column, name) and str in set(map(type, values)):
        return _partly_text(column, values, lambda others: _typed(replace(column, written=AS_USUAL), name, others))
    if name in ("int", "long"):
        return _integers(column, values)
    if name in ("float", "double"):
        return _floats(column, values)
    if name == "boolean":
        return pa.array(values, pa.bool_()), []
    if name == "decimal":
        column = replace(column, written=AS_USUAL)
        values = [None if value is None else str(value) for value in values]
    if name in ENCODED and int in set(map(type, values)):
        return _partly_text(column, values, lambda numbers: _encoded(column, numbers))
    return _text(column, values)


def _partly_text(column: Column, values: Sequence[Any], typed: Callable[[Sequence[Any]], Outcome]) -> Outcome:
    """A column where some values are text and others are not."""
    others, found = typed([None if type(value) is str else value for value in values])
    text, more = _text(column, [value if type(value) is str else None for value in values])
    return pc.coalesce(others, text), found + more


def _text(column: Column, values: Sequence[Any]) -> Outcome:
    text = pa.array(values, pa.string())
    faults: list[RowFault] = []
    if column.kind not in ("bytes", "fixed") or column.logical:
        text, faults = without_nul(column, text)
    typed, found = typed_text(column, text)
    return typed, faults + found


def _integers(column: Column, values: Sequence[Any]) -> Outcome:
    try:
        return pa.array(values, arrow_type(column)), []
    except (OverflowError, pa.ArrowInvalid):
        return one_by_one(column, values, lambda value: fit(column.avro, value))


def _floats(column: Column, values: Sequence[Any]) -> Outcome:
    if not set(map(type, values)) <= {float, type(None)}:
        values = [None if value is None else _float(value) for value in values]
    wide = pa.array(values, pa.float64())
    narrow = wide.cast(arrow_type(column))
    overflown = indices(pc.is_inf(narrow).fill_null(False))
    if not len(overflown):
        return narrow, []
    text = pa.array([as_text(values[row]) for row in overflown], pa.string())
    fault = worded(overflown, column.name, "range", "", text, f" does not fit {column.kind}")
    return blanked(narrow, overflown), [fault]


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _encoded(column: Column, values: Sequence[Any]) -> Outcome:
    """Moments as integers in Avro's encoding."""
    limit = 1 << 63
    if any(value is not None and not -limit <= value < limit for value in values):
        return one_by_one(column, values, lambda value: fit(column.avro, value))
    return typed_integers(column, pa.array(values, pa.int64()))
