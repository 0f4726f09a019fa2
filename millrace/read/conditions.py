"""What a statement asks of each table: DuckDB's parse tree in, simple conditions on columns out. Files whose statistics meet
none of them are not opened. Whatever is not understood here asks for all files.

Only conditions that hold for every row of a SELECT from one table count: columns compared with constants, joined by AND."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from millrace.lake.condition import EQUAL, GREATER, LESS, Condition

_COMPARISONS = {
    "COMPARE_EQUAL": EQUAL,
    "COMPARE_LESSTHAN": LESS,
    "COMPARE_LESSTHANOREQUALTO": LESS,
    "COMPARE_GREATERTHAN": GREATER,
    "COMPARE_GREATERTHANOREQUALTO": GREATER,
}
_TURNED = {EQUAL: EQUAL, LESS: GREATER, GREATER: LESS}
# Other numbers may be doubles.
_EXACT = re.compile(r"-?\d{1,18}(\.\d{1,18})?")
_MOST_VALUES = 100

Spelled = tuple[str, ...]
Value = Decimal | str


def conditions_by_table(tree: Any) -> dict[Spelled, list[list[Condition]]]:
    """For each table as it is spelled, the conditions of each place where it is read. Tables that are read without any
    somewhere are left out."""
    found: dict[Spelled, list[list[Condition]]] = {}
    for spelled, conditions in _reads(tree, None):
        found.setdefault(spelled, []).append(conditions)
    return {spelled: places for spelled, places in found.items() if all(places)}


def _reads(node: Any, select: dict[str, Any] | None) -> Iterator[tuple[Spelled, list[Condition]]]:
    """`select` is the query whose only source the node is."""
    if isinstance(node, list):
        for item in node:
            yield from _reads(item, None)
    elif isinstance(node, dict):
        if node.get("type") == "BASE_TABLE" and "qualified_name" in node:
            spelled = tuple(str(part) for part in node["qualified_name"]["path"])
            yield spelled, [] if select is None else list(_conditions(select, node, spelled))
        for key, value in node.items():
            is_source = key == "from_table" and node.get("type") == "SELECT_NODE"
            yield from _reads(value, node if is_source else None)


def _conditions(select: dict[str, Any], source: dict[str, Any], spelled: Spelled) -> Iterator[Condition]:
    if select.get("sample") or source.get("sample") or source.get("column_name_alias"):
        return
    named = str(source.get("alias") or spelled[-1]).lower()
    made = {str(item.get("alias") or "").lower() for item in select.get("select_list") or () if isinstance(item, dict)}
    for condition in _conjunction(select.get("where_clause"), named):
        if condition.column.lower() not in made:
            yield condition


def _conjunction(node: Any, named: str) -> Iterator[Condition]:
    kind = node.get("type") if isinstance(node, dict) else None
    if kind == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _conjunction(child, named)
    elif kind in _COMPARISONS:
        comparison = _COMPARISONS[kind]
        yield from _condition(node["left"], comparison, [node["right"]], named)
        yield from _condition(node["right"], _TURNED[comparison], [node["left"]], named)
    elif kind == "COMPARE_BETWEEN":
        yield from _condition(node["input"], GREATER, [node["lower"]], named)
        yield from _condition(node["input"], LESS, [node["upper"]], named)
    elif kind == "COMPARE_IN":
        column, *values = node["children"]
        yield from _condition(column, EQUAL, values, named)


def _condition(column: Any, comparison: str, values: Iterable[Any], named: str) -> Iterator[Condition]:
    name = _column(column, named)
    constants = [_constant(value) for value in values]
    if name is not None and 0 < len(constants) <= _MOST_VALUES:
        known = tuple(constant for constant in constants if constant is not None)
        if len(known) == len(constants):
            yield Condition(name, comparison, known)


def _column(node: Any, named: str) -> str | None:
    """A column of the table that is called so."""
    if node.get("type") != "COLUMN_REF":
        return None
    *qualifier, name = [str(part) for part in node["column_names"]]
    return name if not qualifier or (len(qualifier) == 1 and qualifier[0].lower() == named) else None


def _constant(node: Any) -> Value | None:
    kind = node.get("type")
    if kind == "OPERATOR_CAST" and _type_name(node) in ("DATE", "TIMESTAMP"):
        inner = _constant(node["child"])
        return inner if isinstance(inner, str) else None
    literal = node.get("literal") if kind == "VALUE_CONSTANT" else None
    if not isinstance(literal, dict):
        return None
    text = str(literal.get("text"))
    if literal.get("kind") == "STRING":
        return text
    return Decimal(text) if literal.get("kind") in ("INTEGER", "NUMERIC") and _EXACT.fullmatch(text) else None


def _type_name(node: Any) -> str | None:
    named = node.get("type_expr")
    is_plain = isinstance(named, dict) and not named.get("children") and not node.get("try_cast")
    return str(named.get("type_name")).upper() if is_plain else None
