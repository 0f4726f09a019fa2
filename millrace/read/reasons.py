"""Rejected rows of an import in, counts per rule and column out."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.store import Store
from millrace.read.rejected import rejected_numbers, rejected_rows
from millrace.read.row_states import ALL_OPEN, OPEN, RowStates

Why = tuple[str | None, str]


def count_by_reason(errors: Store, import_id: str, states: RowStates = ALL_OPEN) -> list[dict[str, Any]]:
    """The most frequent first. A row with two reasons counts for both, but only once per rule and column. `open` says how
    many of the rows are open."""
    counts: Counter[Why] = Counter()
    still_open: Counter[Why] = Counter()
    examples: dict[Why, str] = {}
    of_open = replace(states, wanted=frozenset({OPEN}))
    for rejected in rejected_rows(errors, import_id):
        wanted = states.only_wanted(rejected.rows)
        for (column, rule, message), rows in _counted(wanted["reasons"]).items():
            counts[column, rule] += rows
            examples.setdefault((column, rule), message)
        for (column, rule, _), rows in _counted(of_open.only_wanted(wanted)["reasons"]).items():
            still_open[column, rule] += rows
    return [
        {"column": why[0], "rule": why[1], "rows": rows, "open": still_open[why], "example": examples[why]}
        for why, rows in counts.most_common()
    ]


def count_states(errors: Store, import_id: str, states: RowStates) -> dict[str, int]:
    """How many rejected rows are in each state."""
    return states.count(rejected_numbers(errors, import_id))


def _counted(reasons: pa.Array) -> dict[tuple[str | None, str, str], int]:
    flat = reasons.flatten()
    reasons = pa.table(
        {
            "row": pc.list_parent_indices(reasons),
            "column": flat.field("column"),
            "rule": flat.field("rule"),
            "message": flat.field("message"),
        }
    )
    once = reasons.group_by(["row", "column", "rule"]).aggregate([("message", "min")])
    grouped = once.group_by(["column", "rule"]).aggregate([("row", "count"), ("message_min", "min")])
    return {(row["column"], row["rule"], row["message_min_min"]): row["row_count"] for row in grouped.to_pylist()}
