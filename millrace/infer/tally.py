"""Judged chunks in; the numbers of rows that pass and fail, and a count and examples for each reason out.

The number of different reasons is bounded: a file can contain any number of unknown fields."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from millrace.validate.judge import JudgedChunk

MAX_REASONS = 500


@dataclass(frozen=True, slots=True)
class Example:
    """`line` is None where the format has no lines."""

    row: int
    line: int | None
    value: str | None
    message: str


@dataclass(slots=True)
class ReasonCount:
    rule: str
    column: str | None
    rows: int = 0
    examples: list[Example] = field(default_factory=list)


class Tally:
    """`repeated_headers`: lines that repeat the header of the file. They are no rows."""

    def __init__(self, examples: int) -> None:
        self.read = self.failed = self.chunks = self.bytes = self.repeated_headers = 0
        self._examples = examples
        self._reasons: dict[tuple[str, str | None], ReasonCount] = {}

    @property
    def reasons(self) -> list[ReasonCount]:
        """The most frequent first."""
        return sorted(self._reasons.values(), key=lambda reason: -reason.rows)

    def add(self, judged: JudgedChunk, plain_bytes: int) -> None:
        verdict = judged.verdict
        self.chunks += 1
        self.bytes += plain_bytes
        self.read += verdict.rows
        self.failed += verdict.rejected
        if judged.rejected is not None:
            # A chunk that is refused as a whole has one record for all its rows.
            weight = verdict.rejected if judged.rejected.num_rows == 1 else 1
            for group in self._groups(judged.rejected):
                self._count(group, weight)

    def refuse(self, rows: int, plain_bytes: int, first_row: int, message: str) -> None:
        """Counts a chunk whose file would be refused."""
        self.chunks += 1
        self.bytes += plain_bytes
        self.read += rows
        self.failed += rows
        example = {"row": [first_row], "line": [0], "value": [None], "message": [message]}
        self._count({"rule": "file", "column": None, "rows": 1, **example}, rows)

    def _groups(self, rejected: pa.Table) -> list[dict[str, Any]]:
        rows = pl.from_arrow(rejected.select(["row", "line", "reasons"]))
        assert isinstance(rows, pl.DataFrame)
        reasons = rows.explode("reasons").unnest("reasons")
        few = [pl.col(name).head(self._examples) for name in ("row", "line", "value", "message")]
        grouped = reasons.group_by("rule", "column", maintain_order=True)
        return grouped.agg(pl.col("row").n_unique().alias("rows"), *few).to_dicts()

    def _count(self, group: dict[str, Any], weight: int) -> None:
        reason = self._reason(group["rule"], group["column"])
        reason.rows += group["rows"] * weight
        examples = zip(group["row"], group["line"], group["value"], group["message"], strict=True)
        for row, line, value, message in examples:
            if len(reason.examples) < self._examples:
                reason.examples.append(Example(row, line or None, value, message))

    def _reason(self, rule: str, column: str | None) -> ReasonCount:
        if (rule, column) not in self._reasons and len(self._reasons) >= MAX_REASONS:
            rule, column = "other", None
        return self._reasons.setdefault((rule, column), ReasonCount(rule, column))
