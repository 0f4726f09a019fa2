"""Failed columns in, advice out: the types that would take all cells, the narrowest first, and what else would help."""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.infer.avro import shown_type
from millrace.infer.evidence import fitting
from millrace.infer.observing import Observed
from millrace.infer.tally import ReasonCount
from millrace.model.columns import Column
from millrace.model.stored_types import Avro
from millrace.model.table import Definition

_EMPTY = ("required", "primary_key")


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
