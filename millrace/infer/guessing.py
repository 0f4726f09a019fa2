"""The cells of one column in, the column that nearly all of them suggest out: its type, how it is written, and how many cells
do not fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from millrace.infer.candidates import Candidate, candidates_of, misfits, typed_column
from millrace.infer.number_marks import odd_marks
from millrace.infer.tolerance import tolerated
from millrace.infer.words import NULL_WORDS, SURELY_NULL
from millrace.model.columns import Column, column_of
from millrace.model.written import AS_USUAL


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    """`column`: the type and how its cells are written. `cells` have a value, and `misfits` of them do not fit. `remarks`:
    what a person should know, each a sentence without its subject.

    `says`: what the column shows about questions that all columns of a file answer alike, as ORDER and COMMA. `choices`: the
    possible columns if its cells do not answer a question themselves, by the answer."""

    column: Column
    cells: int = 0
    misfits: int = 0
    remarks: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)
    question: str | None = None
    choices: Mapping[str, Column] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        return self.column.kind in ("string", "bytes") and self.column.logical is None

    def answered(self, answer: str, remark: str) -> "ColumnGuess":
        """The guess with one of its choices."""
        return replace(self, column=self.choices[answer], remarks=(*self.remarks, remark), question=None)


def guess_column(name: str, cells: pa.Array, nulls: int, *, strict: bool = False) -> ColumnGuess:
    """`cells` are texts without nulls; `nulls` counts the others. `strict`: the format has numbers and booleans of its own,
    so text is never one of them."""
    if not len(cells):
        return ColumnGuess(column_of(name, "string", nullable=True))
    whole = pl.Series(cells)
    filled, words = _without_null_words(whole) if not strict else (whole, [])
    found = _typed(name, filled, nulls, strict) if len(filled) else None
    if found is not None:
        return _with_nulls(found, words, nulls)
    if strict:
        return ColumnGuess(column_of(name, "string", nulls > 0), len(cells))
    sure = [word for word in words if word in SURELY_NULL]
    padded = whole.str.contains("^[ \t]|[ \t]$").sum() * 2 > len(whole)
    column = replace(column_of(name, "string"), written=replace(AS_USUAL, trim=bool(padded)))
    return _with_nulls(ColumnGuess(column, len(cells), remarks=_oddities(filled)), sure, nulls)


def _without_null_words(text: pl.Series) -> tuple[pl.Series, list[str]]:
    bare = text.str.strip_chars(" \t")
    is_null = bare.is_in(NULL_WORDS)
    if not is_null.any():
        return text, []
    return text.filter(~is_null), bare.filter(is_null).unique(maintain_order=True).to_list()


def _with_nulls(guess: ColumnGuess, words: list[str], nulls: int) -> ColumnGuess:
    def nullable(column: Column) -> Column:
        written = replace(column.written, null_texts=tuple(words)) if words else column.written
        return replace(column, nullable=bool(nulls or words), written=written)

    choices = {answer: nullable(column) for answer, column in guess.choices.items()}
    return replace(guess, column=nullable(guess.column), choices=choices)


def _typed(name: str, text: pl.Series, nulls: int, strict: bool) -> ColumnGuess | None:
    """The candidate that takes the most cells, if it takes nearly all. The first of equals wins."""
    best: tuple[int, Candidate] | None = None
    allowed = tolerated(len(text))
    for candidate in candidates_of(text.str.strip_chars(" \t"), nulls, strict):
        wrong = int(misfits(candidate.avro, candidate.written, text).sum())
        if wrong <= allowed and (best is None or wrong < best[0]):
            best = wrong, candidate
        if best is not None and not best[0]:
            break
    if best is None:
        return None
    wrong, found = best
    choices = {answer: typed_column(name, avro, written) for answer, (avro, written) in found.others.items()}
    column = typed_column(name, found.avro, found.written)
    return ColumnGuess(column, len(text), wrong, found.remarks, found.says, found.question, choices)


def _oddities(text: pl.Series) -> tuple[str, ...]:
    found = odd_marks(text.str.strip_chars(" \t")) if len(text) else []
    if not found:
        return ()
    return (
        f"holds numbers with {' and '.join(found)}, which no declaration reads: it stays text unless the file changes",
    )
