"""Whether rules fit a table: their columns exist, and their tests suit the columns' types."""

from collections.abc import Sequence
from typing import Any

from millrace.declare.expression_types import (
    DATE,
    MOMENT,
    NULL,
    NUMBER,
    TEXT,
    TRUTH,
    kind_of,
    kind_of_column,
    refuse_pattern,
)
from millrace.model.columns import Column
from millrace.model.defaults import stored_value
from millrace.model.errors import Invalid
from millrace.model.expressions import columns_of, parse_expression
from millrace.model.fields import field_of, spelled
from millrace.model.rules import Rule
from millrace.model.stored_types import BINARY, LIST, STRING

Columns = Sequence[Column]
_KINDS = {
    "range": (NUMBER, TEXT, DATE, MOMENT),
    "set": (NUMBER, TEXT, TRUTH, DATE),
    "pattern": (TEXT,),
    "fresh": (DATE, MOMENT),
}


def refuse_misfit(rule: Rule, columns: Columns, primary_key: Sequence[str]) -> None:
    by_name = {column.name: column for column in columns}
    for name in rule.columns:
        if name not in by_name:
            raise Invalid(f"Rule {rule.name!r} names {name!r:.60}, which is no column.", code="no_column")
    if rule.kind == "unique":
        _refuse_nested(rule, [by_name[name] for name in rule.columns or primary_key], primary_key)
    elif rule.kind == "check":
        _refuse_expression(rule, columns)
    elif rule.columns:
        _refuse_kind(rule, by_name[rule.columns[0]])


def _refuse_nested(rule: Rule, columns: Columns, primary_key: Sequence[str]) -> None:
    if not rule.columns and not primary_key:
        raise Invalid(f"Rule {rule.name!r} is about the primary key, and there is none.", code="no_column")
    for column in columns:
        if column.kind in ("record", "array", "map"):
            raise Invalid(f"Rule {rule.name!r} names {column.name!r}, which is nested.", remedy="Use scalar columns.")


def _refuse_expression(rule: Rule, columns: Columns) -> None:
    expression = parse_expression(rule.settings["expression"])
    known = {column.name for column in columns}
    for name in columns_of(expression):
        if name not in known:
            raise Invalid(f"Rule {rule.name!r} names {name!r:.60}, which is no column.", code="no_column")
    kind = kind_of(expression, {column.name: kind_of_column(column) for column in columns})
    if kind not in (TRUTH, NULL):
        raise Invalid(f"Rule {rule.name!r} is a {kind}, neither true nor false.", remedy="Compare it with something.")


def _refuse_kind(rule: Rule, column: Column) -> None:
    if rule.kind == "reference":
        return _refuse_nested(rule, [column], (column.name,))
    kind = kind_of_column(column)
    has_length = column.stored.kind in (STRING, BINARY, LIST)
    if kind not in _KINDS.get(rule.kind, (kind,)) or (rule.kind == "length" and not has_length):
        raise Invalid(
            f"Rule {rule.name!r} is a {rule.kind} of {column.name!r}, which is a {field_of(column).spelled()}.",
            remedy="Choose another column or another test.",
        )
    if rule.kind == "range":
        bounds = [stored(column, rule.settings[bound]) for bound in ("min", "max") if bound in rule.settings]
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            raise Invalid(
                f"Rule {rule.name!r} goes from {bounds[0]} to {bounds[1]}.", remedy="Give a range that is not empty."
            )
    elif rule.kind == "set":
        for value in rule.settings["values"]:
            stored(column, value)
    elif rule.kind == "pattern":
        refuse_pattern(rule.settings["pattern"])


def stored(column: Column, value: Any) -> Any:
    """A rule's value as the column stores it. Numbers may be written as text."""
    kind = column.kind
    field = field_of(column)
    if kind in ("float", "double", "int", "long") and column.logical is None:
        return _number(column, value)
    if kind == "enum":
        return str(value)
    try:
        return stored_value(field, value)
    except Invalid:
        raise Invalid(
            f"A rule gives {column.name!r} the value {value!r:.40}, which is no {spelled(field.avro)}."
        ) from None


def _number(column: Column, value: Any) -> float:
    """A bound need not be a value of the column: 0.5 can bound integers."""
    try:
        number = float(value) if not isinstance(value, int) else value
        if isinstance(value, bool) or number != number:
            raise ValueError
        return number
    except (ValueError, TypeError):
        raise Invalid(f"A rule gives {column.name!r} the value {value!r:.40}, which is no number.") from None


def applicable(agreed: Sequence[Rule], columns: Columns, primary_key: Sequence[str]) -> tuple[Rule, ...]:
    """The agreement's rules that fit this table. It may lack their columns, or have them with another type."""
    return tuple(rule for rule in agreed if _fits(rule, columns, primary_key))


def _fits(rule: Rule, columns: Columns, primary_key: Sequence[str]) -> bool:
    try:
        refuse_misfit(rule, columns, primary_key)
    except Invalid:
        return False
    return True
