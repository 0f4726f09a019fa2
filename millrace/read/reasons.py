"""Rejected rows of an import in, counts per rule and column out."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.store import Store
from millrace.read.rejected import rejected_rows


def count_by_reason(errors: Store, import_id: str) -> list[dict[str, Any]]:
    """The most frequent first. A row with two reasons counts for both, but only once per rule and column."""
    counts: Counter[tuple[str | None, str]] = Counter()
    examples: dict[tuple[str | None, str], str] = {}
    for rejected in rejected_rows(errors, import_id):
        for (column, rule, message), rows in _counted(rejected.rows["reasons"]).items():
            counts[column, rule] += rows
            examples.setdefault((column, rule), message)
    return [
        {"column": column, "rule": rule, "rows": rows, "example": examples[column, rule]}
        for (column, rule), rows in counts.most_common()
    ]


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
