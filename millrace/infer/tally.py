"""Judged chunks in; the numbers of rows that pass and fail, a count and examples for each reason, and advice out: the types
that would take all cells of a failed column, the narrowest first, and what else would help.

The number of different reasons is bounded: a file can contain any number of unknown fields."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from millrace.infer.avro import shown_type
from millrace.infer.evidence import fitting
from millrace.infer.observing import Observed
from millrace.model.columns import Column
from millrace.model.stored_types import Avro
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk

MAX_REASONS = 500
_EMPTY = ("required", "primary_key")


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
    def __init__(self, examples: int) -> None:
        self.read = self.failed = self.chunks = self.bytes = 0
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


@dataclass(frozen=True, slots=True)
class Advice:
    """`fits` is the declared type alone if another type would not help, and empty if no type takes all cells."""

    column: str
    declared: str
    fits: tuple[Avro, ...]
    nullable: bool
    advice: str


def advise(definition: Definition, reasons: Sequence[ReasonCount], observed: Observed) -> list[Advice]:
    broken: dict[str, list[ReasonCount]] = {}
    for reason in reasons:
        if reason.column is not None:
            broken.setdefault(reason.column, []).append(reason)
    return [_advice(column, broken[column.name], observed) for column in definition.columns if column.name in broken]


def _advice(column: Column, reasons: list[ReasonCount], observed: Observed) -> Advice:
    rules = {reason.rule for reason in reasons}
    if rules <= {*_EMPTY, "key_length"}:
        fits: tuple[Avro, ...] = (column.avro,)
    elif column.name in observed.written:
        fits = _written(observed.written[column.name])
    else:
        fits = fitting(observed[column.name])
    sentence = _sentence(column, fits, rules, sum(reason.rows for reason in reasons if reason.rule in _EMPTY))
    return Advice(column.name, shown_type(column.avro), fits, "required" in rules, sentence)


def _written(avro: Avro) -> tuple[Avro, ...]:
    branches = avro if isinstance(avro, list) else [avro]
    return tuple(branch for branch in branches if branch is not None and branch != "null")


def _sentence(column: Column, fits: tuple[Avro, ...], rules: set[str], empty: int) -> str:
    parts = []
    if not rules <= {*_EMPTY, "key_length"}:
        names = [shown_type(avro) for avro in fits]
        would = f"{_either(names)} would take every value" if names else "its values are of kinds that no type unites"
        more = "add the missing symbols, or " if column.kind == "enum" and names else ""
        parts.append(f"is declared {shown_type(column.avro)}; {more}{would}")
    if "required" in rules:
        parts.append(f'has no value in {empty:,} rows: ["null", …] would allow it')
    if "primary_key" in rules:
        parts.append(f"is part of the primary key and has no value in {empty:,} rows")
    if "key_length" in rules:
        parts.append("has values too long for a primary key")
    return "; ".join(parts)


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
