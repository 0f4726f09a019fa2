"""The reasons why rows fail and the cells of the columns in, advice about each failed column out: declare how it is written,
declare another type, or mend a few rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.infer.avro import shown_type
from millrace.infer.candidates import misfits
from millrace.infer.described import attributes_of
from millrace.infer.evidence import fitting
from millrace.infer.guessing import ColumnGuess
from millrace.infer.observing import Observed
from millrace.infer.tally import ReasonCount
from millrace.infer.tolerance import tolerated
from millrace.model.columns import Column
from millrace.model.stored_types import Avro
from millrace.model.table import Definition

_EMPTY = ("required", "primary_key")
_TEXT = ("string", "bytes")
# With these the cell is no value of the declared type.
_UNREAD = {"type", "range", "utf8", "nul", "enum", "length", "json"}


@dataclass(frozen=True, slots=True)
class Advice:
    """`fits`: the types that would take all cells, the declared type alone if another would not help, and nothing if no type
    takes them. `declare`: what to declare about the column, as in a document; then `fitting` of `cells` fit. `bad_lines`: the
    places of the first bad cells. `likely`: the column that its cells suggest. `is_tolerable`: so few cells are bad that the
    rows are wrong, and not the declaration."""

    column: str
    declared: str
    fits: tuple[Avro, ...]
    nullable: bool
    advice: str
    declare: dict[str, Any] = field(default_factory=dict)
    cells: int = 0
    fitting: int = 0
    bad_lines: tuple[int, ...] = ()
    likely: Column | None = None
    is_tolerable: bool = False

    def report(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "declared": self.declared,
            "fits": [{"type": shown_type(avro), "avro": avro} for avro in self.fits],
            "nullable": self.nullable,
            "declare": self.declare,
            "cells": {"seen": self.cells, "fitting": self.fitting},
            "bad_lines": list(self.bad_lines),
            "advice": self.advice,
        }


def advise(definition: Definition, reasons: Sequence[ReasonCount], observed: Observed) -> list[Advice]:
    broken: dict[str, list[ReasonCount]] = {}
    for reason in reasons:
        if reason.column is not None:
            broken.setdefault(reason.column, []).append(reason)
    given = [_advice(column, broken[column.name], observed) for column in definition.columns if column.name in broken]
    return [advice for advice in given if advice.advice]


def _advice(column: Column, reasons: list[ReasonCount], observed: Observed) -> Advice:
    rules = {reason.rule for reason in reasons}
    plain = Advice(column.name, shown_type(column.avro), (column.avro,), "required" in rules, "")
    sentences = []
    unread = [reason for reason in reasons if reason.rule in _UNREAD]
    if unread:
        plain = _about_values(column, plain, unread, observed)
        sentences.append(plain.advice)
    empty = sum(reason.rows for reason in reasons if reason.rule in _EMPTY)
    return replace(plain, advice="; ".join([*sentences, *_about_empty_cells(rules, empty)]))


def _about_empty_cells(rules: set[str], empty: int) -> list[str]:
    parts = []
    if "required" in rules:
        parts.append(f'has no value in {_counted(empty, "row")}: ["null", …] would allow it')
    if "primary_key" in rules:
        parts.append(f"is part of the primary key and has no value in {_counted(empty, 'row')}")
    if "key_length" in rules:
        parts.append("has values too long for a primary key")
    return parts


def _about_values(column: Column, plain: Advice, unread: list[ReasonCount], observed: Observed) -> Advice:
    bad = sum(reason.rows for reason in unread)
    lines = tuple(sorted({each.line for reason in unread for each in reason.examples if each.line}))
    fits = _fits(column, observed)
    cells = observed.cells(column.name)
    plain = replace(plain, fits=fits, cells=cells, fitting=max(0, cells - bad), bad_lines=lines)
    guess = observed.guess(column)
    likely = None if guess is None or guess.is_text else replace(guess.column, header=column.header)
    plain = replace(plain, likely=likely)
    few = 0 < bad <= tolerated(cells)
    declared = None if guess is None else _declared_otherwise(column, guess, bad, observed)
    if declared is not None and not (few and "type" in declared[0]):
        return _with_declared(column, plain, *declared)
    if few:
        return _with_bad_rows(column, plain, bad)
    names = [shown_type(avro) for avro in fits]
    would = f"{_either(names)} would take every value" if names else "its values are of kinds that no type unites"
    more = "add the missing symbols, or " if column.kind == "enum" and names else ""
    return replace(plain, advice=f"is declared {plain.declared}; {more}{would}")


def _fits(column: Column, observed: Observed) -> tuple[Avro, ...]:
    if column.name in observed.written:
        avro = observed.written[column.name]
        branches = avro if isinstance(avro, list) else [avro]
        return tuple(branch for branch in branches if branch is not None and branch != "null")
    return fitting(observed[column.name])


def _declared_otherwise(
    column: Column, guess: ColumnGuess, bad: int, observed: Observed
) -> tuple[dict[str, Any], int, int] | None:
    """What to declare, how many cells then fit, and how many there are; None if nothing else than text would help."""
    if guess.is_text:
        return None
    text = observed.text(column.name)
    text = text.filter(~text.str.strip_chars(" \t").is_in(guess.column.written.null_texts))
    allowed = tolerated(len(text))
    own = attributes_of(column)
    for avro in (column.avro, guess.column.avro):
        changed = replace(guess.column, avro=avro)
        said = {word: value for word, value in attributes_of(changed).items() if own.get(word) != value}
        wrong = int(misfits(avro, changed.written, text).sum()) if said or avro != column.avro else bad
        if wrong <= allowed and wrong < bad:
            declare = said if avro == column.avro else {"type": avro, **said}
            return declare, len(text) - wrong, len(text)
    return None


def _with_declared(column: Column, plain: Advice, declare: dict[str, Any], fit: int, cells: int) -> Advice:
    attributes = ", ".join(f"`{word}: {_shown(value)}`" for word, value in declare.items() if word != "type")
    if "type" in declare and not attributes and fit == cells:
        # Another type alone takes all cells.
        names = [shown_type(avro) for avro in plain.fits]
        advice = f"is declared {plain.declared}; {_either(names)} would take every value"
        return replace(plain, advice=advice, declare=declare, fitting=fit, cells=cells)
    what = (
        f"{shown_type(declare['type'])}{' with ' if attributes else ''}{attributes}"
        if "type" in declare
        else attributes
    )
    advice = f"is declared {plain.declared}; declare {what} for it: {fit:,} of {_counted(cells, 'cell')} fit"
    fits = (declare.get("type", column.avro),)
    return replace(plain, advice=advice, declare=declare, fits=fits, fitting=fit, cells=cells)


def _with_bad_rows(column: Column, plain: Advice, bad: int) -> Advice:
    wider = tuple(avro for avro in plain.fits if avro not in _TEXT)
    where = f" ({_places(plain.bad_lines, bad)})" if plain.bad_lines else ""
    advice = f"is declared {plain.declared}, and {plain.fitting:,} of {_counted(plain.cells, 'cell')} fit: "
    advice += f"{_counted(bad, 'row')} {'is' if bad == 1 else 'are'} bad{where}"
    if wider and wider != (column.avro,):
        advice += f"; {_either([shown_type(avro) for avro in wider])} would take every value"
    return replace(plain, advice=advice, fits=wider or (column.avro,), is_tolerable=True)


def _places(lines: tuple[int, ...], bad: int) -> str:
    shown = ", ".join(f"{line:,}" for line in lines)
    more = f" and {bad - len(lines):,} more" if bad > len(lines) else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {shown}{more}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return value if isinstance(value, str) and value.strip(" .,'\u00a0\u202f-") else repr(value)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
