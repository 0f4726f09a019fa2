"""The columns of a CSV sample: bodies of whole rows in, a guess about each column out. Repeated headers are no rows."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.infer.candidates import compact_moment
from millrace.infer.csv_dialect import CsvGuess, cells_of
from millrace.infer.csv_header import without_header
from millrace.infer.evidence import NOTHING, Evidence, bytes_evidence, fitting
from millrace.infer.guessing import ColumnGuess, guess_column
from millrace.infer.name_hints import is_no_amount, since_1970
from millrace.infer.tolerance import tolerated
from millrace.model.chunk import TextLayout
from millrace.model.columns import column_of
from millrace.validate.cells import is_utf8

_WHOLE = ("int", "long")


class CsvColumns:
    """`header`: how the header is written, if there is one. Columns are named by their place in the file."""

    def __init__(self, layout: TextLayout, header: CsvGuess | None) -> None:
        self.rows = 0
        self._layout = layout
        self._header = header
        self._evidence: dict[str, Evidence] = dict.fromkeys(layout.columns, NOTHING)
        self._cells: dict[str, list[pa.Array]] = {place: [] for place in layout.columns}

    def add(self, body: bytes) -> Mapping[str, pa.Array]:
        """Adds whole rows. Returns the cells of those with the right number of cells."""
        if self._header is not None:
            body, _ = without_header(body, self._header)
        cells = cells_of(body, self._layout)
        if cells is None:
            return {}
        self.rows += cells.rows
        for place, column in cells.columns.items():
            shown = self._evidence[place]
            self._evidence[place] = shown.merged(bytes_evidence(column, shown.fits))
            self._cells[place].append(column)
        return cells.columns

    def nulls(self, place: str) -> int:
        return self._evidence[place].nulls

    def text(self, place: str) -> pl.Series:
        """The cells with a value, without spaces at the edges."""
        return pl.Series(_filled(self._cells[place]).view(pa.string())).str.strip_chars(" \t")

    def holds(self, place: str, word: str) -> bool:
        """Whether a cell is this word."""
        scalar = pa.scalar(word.encode(), pa.binary())
        return any(pc.any(pc.equal(cells, scalar)).as_py() for cells in self._cells[place])

    def guess(self, place: str, name: str) -> ColumnGuess:
        shown = self._evidence[place]
        if shown.cells and "string" not in shown.fits:
            return self._damaged(place, name, shown)
        return _guess(name, shown, self._cells[place])

    def _damaged(self, place: str, name: str, shown: Evidence) -> ColumnGuess:
        """The guess about a column with cells that are not UTF-8, or that hold a NUL: bytes, unless they are few."""
        cells = _filled(self._cells[place])
        broken = _broken(cells)
        if broken.sum() > tolerated(len(cells)):
            return ColumnGuess(column_of(name, "bytes", shown.nulls > 0), len(cells))
        sound = cells.filter(pa.array(~broken))
        guess = _guess(name, replace(bytes_evidence(sound), nulls=shown.nulls), [sound])
        return replace(guess, misfits=guess.misfits + int(broken.sum()))


def _guess(name: str, shown: Evidence, parts: list[pa.Array]) -> ColumnGuess:
    avro = next(iter(fitting(shown)), "string")
    if avro in ("string", "bytes"):
        return guess_column(name, _filled(parts).view(pa.string()), shown.nulls)
    guess = ColumnGuess(column_of(name, "double" if avro == "float" else avro, shown.nulls > 0), shown.cells)
    return _whole_numbers(guess, shown, parts) if avro in _WHOLE else guess


def _whole_numbers(guess: ColumnGuess, shown: Evidence, parts: list[pa.Array]) -> ColumnGuess:
    """Whole numbers may be codes, dates without separators, or moments that are counted."""
    column = guess.column
    if is_no_amount(column.name):
        plain = column_of(column.name, "string", column.nullable)
        return replace(
            guess, column=plain, remarks=("has only digits, but its name says that these are no amounts: it is text",)
        )
    text = pl.Series(_filled(parts).view(pa.string()))
    moment = compact_moment(column.name, text)
    if moment is not None:
        return replace(guess, column=replace(moment, nullable=column.nullable))
    numbers = text.str.strip_chars(" \t").cast(pl.Int64)
    low, high = numbers.min(), numbers.max()
    unit = since_1970(column.name, low, high) if isinstance(low, int) and isinstance(high, int) else None
    return replace(guess, remarks=(f"seems to hold {unit} since 1970: it stays a number",)) if unit else guess


def _filled(parts: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays([part.drop_null() for part in parts]) if parts else pa.array([], pa.binary())


def _broken(cells: pa.Array) -> npt.NDArray[np.bool_]:
    beyond = pc.invert(pc.string_is_ascii(cells.view(pa.string()))).to_numpy(zero_copy_only=False)
    broken: npt.NDArray[np.bool_] = pc.match_substring(cells, "\0").to_numpy(zero_copy_only=False).copy()
    for row in np.flatnonzero(beyond):
        broken[row] |= not is_utf8(cells[int(row)].as_py())
    return broken
