"""The guesses about all columns of a file in, the same guesses out, with answers to what single columns do not tell: whether
the day or the month comes first, and what a comma or a point in a number means.

A file is written by one program, so a column that tells speaks for those that do not. If none tells, a default does, and a
remark names both possibilities."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from millrace.infer.avro import shown_type
from millrace.infer.candidates import COMMA, ORDER, separated_numbers
from millrace.infer.guessing import ColumnGuess
from millrace.infer.moment_shapes import DAY_FIRST
from millrace.infer.number_marks import NumberMarks, groups_of_three

Cells = Callable[[str], pl.Series]


def agreed(guesses: Sequence[ColumnGuess], delimiter: str, cells: Cells) -> list[ColumnGuess]:
    """`cells`: the text of a column's cells, without spaces at the edges."""
    found = [_ordered(guess, guesses) if guess.question == ORDER else guess for guess in guesses]
    found = [_comma(guess, guesses, delimiter) if guess.question == COMMA else guess for guess in found]
    return [_points(guess, guesses, cells) for guess in found]


def _told(guesses: Sequence[ColumnGuess], question: str) -> tuple[str, str] | None:
    """The answer of the columns that tell, and the name of one; None if they contradict each other."""
    told = {guess.says[question]: guess.column.name for guess in reversed(guesses) if question in guess.says}
    return next(iter(told.items())) if len(told) == 1 else None


def _ordered(guess: ColumnGuess, guesses: Sequence[ColumnGuess]) -> ColumnGuess:
    told = _told(guesses, ORDER)
    answer = told[0] if told else next(iter(guess.choices))
    taken, other = _format(guess, answer), next(_format(guess, each) for each in guess.choices if each != answer)
    first, second = ("day", "month") if answer == DAY_FIRST else ("month", "day")
    why = f"as in column {told[1]!r}, where the {first} is first" if told else "by default"
    remark = (
        f"does not show whether day or month is first: this cannot be told from its cells. {taken} is proposed, {why}; "
        f"declare {other} if the {second} is first"
    )
    return guess.answered(answer, remark)


def _format(guess: ColumnGuess, answer: str) -> str:
    return " or ".join(guess.choices[answer].written.formats)


def _comma(guess: ColumnGuess, guesses: Sequence[ColumnGuess], delimiter: str) -> ColumnGuess:
    told = _told(guesses, COMMA)
    # A comma between cells makes a decimal comma unlikely.
    answer = told[0] if told else "thousands" if delimiter == "," else "decimal"
    why = f"as in column {told[1]!r}" if told else "by default"
    return guess.answered(
        answer, f"does not show whether its comma separates decimals or thousands; {answer} are proposed, {why}"
    )


def _points(guess: ColumnGuess, guesses: Sequence[ColumnGuess], cells: Cells) -> ColumnGuess:
    """Points between groups of three digits separate thousands if another column has decimal commas."""
    column = guess.column
    told = _told(guesses, COMMA)
    if told is None or told[0] != "decimal" or column.written.has_own_numbers or shown_type(column.avro) != "double":
        return guess
    text = cells(column.name)
    if not groups_of_three(text):
        return guess
    changed = separated_numbers(column, NumberMarks(".", ",", len(text)), text)
    remark = f"has points that separate thousands, because column {told[1]!r} has decimal commas"
    return replace(guess, column=changed, remarks=(*guess.remarks, remark))
