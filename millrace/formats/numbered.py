"""Corrected rows that name the rejected rows they replace: pieces of a file with the column `_row` in, the numbers and the
rows without them out. What remains is cut and judged like any other file.

In CSV `_row` is the first or the last column. In JSON Lines it is a member of each object."""

import json
import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.formats.line_cut import line_spans
from millrace.formats.pieces import CutPiece
from millrace.model.chunk import TextLayout
from millrace.model.columns import ROW_COLUMN
from millrace.model.errors import Invalid

Numbers = npt.NDArray[np.int64]
# A row without a number.
NO_NUMBER = -1

_FIRST_MEMBER = re.compile(rb'[ \t]*\{[ \t]*"_row"[ \t]*:[ \t]*("?)(-?\d{1,18}|null)\1[ \t]*(?:,[ \t]*|(?=\}))')
_MEMBER = re.compile(rb'"_row"[ \t]*:')
_IS_NUMBER = r"^[0-9]{1,18}$"


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """`numbers` has one entry per row; None if no row has a number. `layout` is that of the rows that are left."""

    numbers: Numbers | None
    body: bytes
    layout: TextLayout | None


def without_numbers(cut: CutPiece) -> NumberedRows:
    if cut.layout is not None:
        return _csv(cut, cut.layout) if ROW_COLUMN in cut.layout.columns else NumberedRows(None, cut.body, cut.layout)
    return _json(cut) if cut.encoding == "jsonl" else NumberedRows(None, cut.body, None)


def header_line(layout: TextLayout) -> bytes:
    names = [_cell(name, layout) for name in layout.columns]
    return layout.delimiter.join(names).encode()


def _cell(name: str, layout: TextLayout) -> str:
    quote = layout.quote
    plain = name and name == name.strip() and not any(sign in name for sign in (layout.delimiter, quote, "\r", "\n"))
    return name if plain else f"{quote}{name.replace(quote, quote * 2)}{quote}"


def _csv(cut: CutPiece, layout: TextLayout) -> NumberedRows:
    place, last = layout.columns.index(ROW_COLUMN), len(layout.columns) - 1
    if place not in (0, last):
        raise Invalid(
            f"{ROW_COLUMN} is column {place + 1} of {last + 1}.",
            remedy="Make it the first or the last column of the file.",
        )
    spans = row_spans(cut.body, layout.delimiter, layout.quote)
    octets = np.frombuffer(cut.body, np.uint8)
    delimiters = np.flatnonzero(octets == ord(layout.delimiter))
    starts, ends = spans.starts, spans.ends
    if place == 0:
        behind = np.append(delimiters, len(octets))[np.searchsorted(delimiters, starts)]
        cell_starts, cell_ends = starts, np.minimum(behind, ends)
        gone_starts, gone_ends = starts, np.minimum(cell_ends + 1, ends)
    else:
        before = np.append(-1, delimiters)[np.searchsorted(delimiters, ends)]
        cell_starts, cell_ends = np.maximum(before + 1, starts), ends
        gone_starts, gone_ends = np.maximum(before, starts), ends
    numbers = _numbers(_slices(cut.body, cell_starts, cell_ends), layout.quote, spans.lines + cut.first_line)
    left = replace(layout, columns=tuple(name for name in layout.columns if name != ROW_COLUMN))
    is_blank = gone_ends - gone_starts == ends - starts
    if is_blank.any():
        # A row without cells would be a blank line, which is no row.
        kept = [cut.body[a:b] + cut.body[c:d] for a, b, c, d in zip(starts, gone_starts, gone_ends, ends, strict=True)]
        return NumberedRows(numbers, b"\n".join(row or 2 * left.quote.encode() for row in kept) + b"\n", left)
    edges = np.zeros(len(octets) + 1, np.int8)
    edges[gone_starts] += 1
    edges[gone_ends] -= 1
    return NumberedRows(numbers, octets[np.cumsum(edges[:-1], dtype=np.int8) == 0].tobytes(), left)


def _slices(body: bytes, starts: Numbers, ends: Numbers) -> pa.Array:
    bounds = np.empty(len(starts) * 2, np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    entries = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    return entries.take(pa.array(np.arange(len(starts)) * 2))


def _numbers(cells: pa.Array, quote: str, lines: Numbers) -> Numbers:
    texts = pc.utf8_trim(_decoded(cells), quote + " \t")
    is_number, is_empty = pc.match_substring_regex(texts, _IS_NUMBER), pc.equal(texts, "")
    wrong = np.flatnonzero(np.asarray(pc.invert(pc.or_(is_number, is_empty))))
    if len(wrong):
        raise _no_number(int(lines[wrong[0]]), texts[int(wrong[0])].as_py())
    found = pc.if_else(is_number, texts, str(NO_NUMBER)).cast(pa.int64())
    return np.asarray(np.from_dlpack(found), np.int64)


def _decoded(cells: pa.Array) -> pa.Array:
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([cell.decode("utf-8", "replace") for cell in cells.to_pylist()], pa.string())


def _no_number(line: int, text: str) -> Invalid:
    return Invalid(
        f"Line {line}: {ROW_COLUMN} is {text!r:.60}, which is no row number.",
        remedy="Keep the numbers that `millrace errors --as-file` wrote.",
        code="bad_row_number",
    )


def _json(cut: CutPiece) -> NumberedRows:
    if _MEMBER.search(cut.body) is None:
        return NumberedRows(None, cut.body, None)
    spans = line_spans(cut.body)
    numbers, lines = [], []
    for place, (start, end) in enumerate(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)):
        number, line = _json_row(cut.body[start:end], int(spans.lines[place]) + cut.first_line)
        numbers.append(number)
        lines.append(line)
    found = np.array(numbers, np.int64)
    return NumberedRows(found, b"\n".join(lines) + b"\n", None)


def _json_row(line: bytes, at: int) -> tuple[int, bytes]:
    first = _FIRST_MEMBER.match(line)
    if first is not None:
        number = NO_NUMBER if first[2] == b"null" else int(first[2])
        if number < NO_NUMBER + (first[2] != b"null"):
            raise _no_number(at, first[2].decode())
        return number, b"{" + line[first.end() :]
    if _MEMBER.search(line) is None:
        return NO_NUMBER, line
    return _json_anywhere(line, at)


def _json_anywhere(line: bytes, at: int) -> tuple[int, bytes]:
    """The number is not the first member: the object is read and written again, with the text of its numbers."""
    try:
        found = json.loads(line, parse_float=_Kept, parse_int=_Kept)
    except (ValueError, RecursionError):
        return NO_NUMBER, line
    if not isinstance(found, dict) or ROW_COLUMN not in found:
        return NO_NUMBER, line
    said = found.pop(ROW_COLUMN)
    try:
        left = _written(found).encode()
    except RecursionError:
        raise Invalid(
            f"Line {at}: its values are nested too deeply.", remedy=f"Make {ROW_COLUMN} the first member of the object."
        ) from None
    if not (said is None or re.fullmatch(_IS_NUMBER, str(said), re.ASCII)):
        raise _no_number(at, str(said))
    return NO_NUMBER if said is None else int(said), left


class _Kept(str):
    """The text of a number."""

    __slots__ = ()


def _written(value: object) -> str:
    if isinstance(value, _Kept):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)
