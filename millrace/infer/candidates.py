"""The text of a column's cells in, candidates out: types and ways of writing that the shapes of the cells suggest. The
judge's own reader says which cells a candidate takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from millrace.infer.avro import avro_type
from millrace.infer.evidence import fitting, text_evidence
from millrace.infer.moment_shapes import DATE, DAY_FIRST, MONTH_FIRST, TIME, TIMESTAMP, MomentShape, shapes_of
from millrace.infer.number_marks import NumberMarks, marks_of
from millrace.infer.tolerance import tolerated
from millrace.infer.words import MOST_WORDS, boolean_words, cross
from millrace.model.columns import Column, column_of
from millrace.model.stored_types import Avro
from millrace.model.written import AS_USUAL, Writing
from millrace.validate.text import typed_text

ORDER, COMMA = "order", "comma"
Flags = npt.NDArray[np.bool_]

_TYPES = {DATE: avro_type("date"), TIMESTAMP: avro_type("timestamp-micros")}
# One type of each family, the one that takes the most. Evidence of the cells it takes then finds the narrowest.
_MOMENTS = ("date", "timestamp-micros", "time-micros", "uuid")
_SCALARS = ("double", "boolean", *_MOMENTS)
_GLANCE = 200
_MOST_FORMATS = 5
_FEWEST_COMPACT = 3
_COMPACT_DIGITS = (8, 14)
_FIRST_YEAR, _LAST_YEAR = "1900", "2100"


@dataclass(frozen=True, slots=True)
class Candidate:
    """`says`, `question` and `others` are those of a ColumnGuess."""

    avro: Avro
    written: Writing = AS_USUAL
    says: Mapping[str, str] = field(default_factory=dict)
    question: str | None = None
    others: Mapping[str, tuple[Avro, Writing]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def misfits(avro: Avro, written: Writing, text: pl.Series) -> Flags:
    """Which cells the judge does not take."""
    _, faults = typed_text(replace(column_of("", avro), written=written), text.to_arrow().cast(pa.string()))
    wrong = np.zeros(len(text), np.bool_)
    for fault in faults:
        wrong[fault.rows] = True
    return wrong


def candidates_of(text: pl.Series, nulls: int, strict: bool) -> Iterator[Candidate]:
    glance = text.gather_every(max(1, len(text) // _GLANCE))
    yield from _plain(text, glance, strict)
    if not strict:
        yield from _booleans(text, nulls)
        yield from _numbers(text, glance)
    yield from _moments(text, glance)


def _plain(text: pl.Series, glance: pl.Series, strict: bool) -> Iterator[Candidate]:
    """Types that nearly all cells have as the judge reads them anyway."""
    for name in _MOMENTS if strict else _SCALARS:
        avro = avro_type(name)
        if misfits(avro, AS_USUAL, glance).sum() <= tolerated(len(glance)):
            taken = text.filter(pl.Series(~misfits(avro, AS_USUAL, text)))
            narrowest = next(iter(fitting(text_evidence(taken.to_arrow().cast(pa.string())))), "string")
            if narrowest not in ("string", "bytes"):
                yield Candidate(narrowest)


def _booleans(text: pl.Series, nulls: int) -> Iterator[Candidate]:
    if text.n_unique() > MOST_WORDS:
        return
    words = dict(text.to_frame("word").group_by("word", maintain_order=True).len().iter_rows())
    pair = boolean_words(words)
    if pair is not None:
        true, false = pair
        yield Candidate("boolean", replace(AS_USUAL, true_texts=tuple(true), false_texts=tuple(false)))
    mark = cross(words, nulls)
    if mark is not None:
        remark = f"has {mark!r} or nothing: {mark!r} is true, and an empty cell is null"
        yield Candidate("boolean", replace(AS_USUAL, true_texts=(mark,)), remarks=(remark,))


def _numbers(text: pl.Series, glance: pl.Series) -> Iterator[Candidate]:
    seen = marks_of(glance)
    if not seen or seen[0].cells < len(glance) - tolerated(len(glance)) - 1:
        return
    possible = [(marks, avro) for marks in marks_of(text) if (avro := _number_type(marks, text)) is not None]
    if not possible:
        return
    written = {_answer(marks): (avro, _separated(marks)) for marks, avro in reversed(possible)}
    marks, avro = possible[0]
    decimal = [one for one, _ in possible if one.decimal == ","]
    thousands = [one for one, _ in possible if one.thousands == ","]
    if decimal and thousands:
        yield Candidate(avro, _separated(marks), {}, COMMA, written)
    else:
        yield Candidate(avro, _separated(marks), _shown_commas(marks))


def _shown_commas(marks: NumberMarks) -> dict[str, str]:
    return {COMMA: _answer(marks)} if "," in (marks.decimal, marks.thousands) else {}


def _answer(marks: NumberMarks) -> str:
    return "decimal" if marks.decimal == "," else "thousands"


def _number_type(marks: NumberMarks, text: pl.Series) -> Avro | None:
    evidence = text_evidence(marks.normalised(text).to_arrow().cast(pa.string()))
    avro = next(iter(fitting(evidence)), None)
    return None if evidence.is_spelled or avro in (None, "string", "bytes", "boolean") else avro


def _separated(marks: NumberMarks) -> Writing:
    return replace(AS_USUAL, decimal_separator=marks.decimal, thousands_separator=marks.thousands)


def _moments(text: pl.Series, glance: pl.Series) -> Iterator[Candidate]:
    seen = shapes_of(glance)
    if sum(shape.cells for shape in seen) < len(glance) - tolerated(len(glance)) - 1:
        return
    shapes = [shape for shape in shapes_of(text) if shape.cells > 0][:_MOST_FORMATS]
    moments = [shape for shape in shapes if shape.kind != TIME]
    if sum(shape.cells for shape in moments) * 2 < sum(shape.cells for shape in shapes):
        times = [shape for shape in shapes if shape.kind == TIME]
        fine = any("SSSS" in shape.pattern for shape in times)
        formats = tuple(shape.pattern for shape in times)
        yield Candidate(avro_type("time-micros" if fine else "time-millis"), replace(AS_USUAL, formats=formats))
    elif moments:
        yield _dated(moments)


def _dated(shapes: list[MomentShape]) -> Candidate:
    kind = TIMESTAMP if any(shape.kind == TIMESTAMP for shape in shapes) else DATE
    told = next((shape.order for shape in shapes if shape.order), None)
    is_open = told is None and any(shape.is_open for shape in shapes)

    def written(order: str) -> Writing:
        return replace(AS_USUAL, formats=tuple(dict.fromkeys(shape.format(order) for shape in shapes)))

    # AM and PM are written where the month is first.
    likely = MONTH_FIRST if any(" a" in shape.pattern for shape in shapes) else DAY_FIRST
    if not is_open:
        return Candidate(_TYPES[kind], written(told or likely), {ORDER: told} if told else {})
    ordered = [likely, DAY_FIRST if likely == MONTH_FIRST else MONTH_FIRST]
    choices = {order: (_TYPES[kind], written(order)) for order in ordered}
    return Candidate(_TYPES[kind], written(likely), {}, ORDER, choices)


def separated_numbers(column: Column, marks: NumberMarks, text: pl.Series) -> Column:
    """The column with other separators, and the type that its numbers then have."""
    written = replace(column.written, decimal_separator=marks.decimal, thousands_separator=marks.thousands)
    changed = typed_column(column.name, _number_type(marks, text) or column.avro, written)
    return replace(changed, nullable=column.nullable, header=column.header)


def compact_moment(name: str, text: pl.Series) -> Column | None:
    """The column if its whole numbers are all dates without separators, such as 20240131."""
    lengths = text.str.len_bytes().unique().to_list()
    if len(text) < _FEWEST_COMPACT or len(lengths) != 1 or lengths[0] not in _COMPACT_DIGITS:
        return None
    years = text.str.slice(0, 4)
    if not ((years >= _FIRST_YEAR) & (years < _LAST_YEAR)).all():
        return None
    kind, pattern = (DATE, "yyyyMMdd") if lengths[0] == _COMPACT_DIGITS[0] else (TIMESTAMP, "yyyyMMddHHmmss")
    written = replace(AS_USUAL, formats=(pattern,))
    return None if misfits(_TYPES[kind], written, text).any() else typed_column(name, _TYPES[kind], written)


def typed_column(name: str, avro: Avro, written: Writing) -> Column:
    # Later numbers may need more digits than a float has.
    return replace(column_of(name, "double" if avro == "float" else avro), written=written)
