"""Rules about single rows: a chunk's typed columns in, the rows that break each rule out. There is no loop over rows.

A null breaks the rule `required` alone. Rows that delete their key are not checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.declare.rules_fit import stored
from millrace.model.columns import Column
from millrace.model.expressions import parse_expression
from millrace.model.rules import OF_ROWS, REJECT, Rule
from millrace.model.table import Definition
from millrace.validate.deletes import Flags
from millrace.validate.expressions import comparable, evaluate, literal
from millrace.validate.faults import RowFault, Rows, lossy, same
from millrace.validate.parsed import Parsed, Reading

Columns = Mapping[str, pa.Array]
_DAY_US = 86_400_000_000
_parsed = lru_cache(maxsize=1000)(parse_expression)


@dataclass(frozen=True, slots=True)
class BrokenRules:
    """`faults` are those of rules that reject. `rows`: for each rule the rows of the chunk that break it."""

    faults: list[RowFault] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)


def check_rows(
    parsed: Parsed,
    reading: Reading,
    definition: Definition,
    version: int,
    deleted: Flags | None,
    faults: list[RowFault],
) -> BrokenRules:
    """`version` is the chunk's version. It is the only clock, so that the result never changes."""
    rules = [rule for rule in definition.rules if rule.kind in OF_ROWS]
    if not rules or not parsed.columns or not len(parsed.columns[0]):
        return BrokenRules()
    by_name = {column.name: column for column in reading.columns}
    columns = dict(zip(by_name, parsed.columns, strict=True))
    asked = np.ones(len(parsed.columns[0]), np.bool_) if deleted is None else ~deleted
    unread = _unread(parsed, faults)
    broken = BrokenRules()
    for rule in rules:
        kept = _kept(rule, by_name, columns, version)
        breaks = pc.invert(kept).fill_null(False).to_numpy(zero_copy_only=False) & asked
        if rule.kind == "required":
            breaks = breaks & ~unread
        entries = np.flatnonzero(breaks).astype(np.int64, copy=False)
        rows = entries if parsed.positions is None else parsed.positions[entries]
        broken.rows[rule.name] = rows
        if rule.action == REJECT and len(rows):
            broken.faults.append(_fault(rule, columns, entries, rows))
    return broken


def _unread(parsed: Parsed, faults: list[RowFault]) -> Flags:
    """Entries that are null because their cell could not be read. That fault is their reason, not a missing value."""
    bad = np.zeros(parsed.rows, np.bool_)
    for fault in faults:
        bad[fault.rows] = True
    return bad if parsed.positions is None else bad[parsed.positions]


def _kept(rule: Rule, by_name: Mapping[str, Column], columns: Columns, version: int) -> pa.Array:
    """True where the row keeps the rule, null where it is unknown."""
    if rule.kind == "check":
        kept = evaluate(_parsed(rule.settings["expression"]), columns)
        size = len(next(iter(columns.values())))
        return pa.repeat(kept, size).cast(pa.bool_()) if isinstance(kept, pa.Scalar) else kept.cast(pa.bool_())
    column = by_name[rule.columns[0]]
    values = columns[column.name]
    if rule.kind == "fresh":
        return _fresh(rule, values, version)
    return _TESTS[rule.kind](rule, column, values)


def _range(rule: Rule, column: Column, values: pa.Array) -> pa.Array:
    kept = pa.repeat(pa.scalar(True), len(values))
    for bound, compare in (("min", pc.greater_equal), ("max", pc.less_equal)):
        if bound in rule.settings:
            kept = pc.and_kleene(kept, compare(*comparable(values, _scalar(column, rule.settings[bound]))))
    return kept


def _scalar(column: Column, value: Any) -> pa.Scalar:
    known = stored(column, value)
    return pa.scalar(known, arrow_type(column)) if pa.types.is_temporal(arrow_type(column)) else literal(known)


def _set(rule: Rule, column: Column, values: pa.Array) -> pa.Array:
    known = [stored(column, value) for value in rule.settings["values"]]
    if pa.types.is_integer(values.type):
        largest = 1 << (values.type.bit_width - 1)
        known = [int(value) for value in known if value == int(value) and -largest <= value < largest]
    return pc.or_(pc.is_null(values), pc.is_in(values, pa.array(known, values.type)))


def _length(rule: Rule, column: Column, values: pa.Array) -> pa.Array:
    measure = pc.utf8_length if pa.types.is_string(values.type) else pc.binary_length
    lengths = pc.list_value_length(values) if pa.types.is_list(values.type) else measure(values)
    kept = pc.greater_equal(lengths, rule.settings.get("min", 0))
    return pc.and_kleene(kept, pc.less_equal(lengths, rule.settings["max"])) if "max" in rule.settings else kept


def _fresh(rule: Rule, values: pa.Array, version: int) -> pa.Array:
    """A date counts as its first moment. It stays in its own unit, so that the farthest date cannot overflow."""
    is_date = pa.types.is_date(values.type)
    unit = _DAY_US if is_date else 1
    units = values.cast(pa.int32()) if is_date else values.cast(pa.int64())
    kept = pa.repeat(pa.scalar(True), len(values))
    if "max_age_seconds" in rule.settings:
        oldest = version - rule.settings["max_age_seconds"] * 1_000_000
        kept = pc.and_kleene(kept, pc.greater_equal(units, -(-oldest // unit)))
    if "max_ahead_seconds" in rule.settings:
        newest = version + rule.settings["max_ahead_seconds"] * 1_000_000
        kept = pc.and_kleene(kept, pc.less_equal(units, newest // unit))
    return kept


_TESTS: dict[str, Callable[[Rule, Column, pa.Array], pa.Array]] = {
    "required": lambda rule, column, values: pc.is_valid(values),
    "range": _range,
    "set": _set,
    "pattern": lambda rule, column, values: pc.match_substring_regex(values, rule.settings["pattern"]),
    "length": _length,
}


def _fault(rule: Rule, columns: Columns, entries: Rows, rows: Rows) -> RowFault:
    column = rule.columns[0] if rule.columns else None
    shown = None if column is None else _shown(columns[column].take(pa.array(entries)))
    return same(rows, column, rule.name, wording(rule), shown)


def _shown(cells: pa.Array) -> pa.Array:
    if pa.types.is_binary(cells.type):
        return lossy(cells)
    if pa.types.is_nested(cells.type):
        return pa.nulls(len(cells), pa.string())
    return cells.cast(pa.string())


def wording(rule: Rule) -> str:
    """The message of a row that breaks the rule."""
    settings = rule.settings
    low, high = settings.get("min"), settings.get("max")
    match rule.kind:
        case "required":
            return "has no value"
        case "range" | "length":
            what = "is not" if rule.kind == "range" else "does not have a length"
            words = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            return f"{what} {' and '.join(words)}"
        case "set":
            return "is none of the values allowed"
        case "pattern":
            return f"does not match {settings['pattern']}"[:200]
        case "fresh":
            return "is too old or too far ahead"
        case _:
            return f"breaks {settings['expression']}"[:200]
