"""Whether the first row of a CSV file is a header: its cells and the rows behind it in, yes or no out."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millrace.infer.choose import fitting
from millrace.infer.column_names import unusable
from millrace.infer.csv_dialect import CsvGuess, cells_of, layout_of
from millrace.infer.evidence import bytes_evidence, text_evidence
from millrace.model.stored_types import Avro

_LIKE_A_NAME = re.compile(r"[^\W\d][\w .\-/()#%:+&']{0,99}")
_TEXT = ("string", "bytes")


def is_heading(written: CsvGuess, rest: bytes, null_text: str) -> bool:
    names = [name.strip() for name in written.first_row]
    filled = [name for name in names if name]
    if not filled or len(unusable(names)) == len(set(names)):
        return False
    if any(_narrowest(text_evidence(pa.array([name])).fits) for name in filled):
        # A number, a date or the like is data.
        return False
    cells = cells_of(rest, layout_of(len(names), written.delimiter, written.quote, null_text))
    columns = [] if cells is None else list(cells.columns.values())
    if any(_is_typed(fitting(bytes_evidence(column))) for column in columns):
        return True
    return len(filled) * 2 > len(names) and all(map(_LIKE_A_NAME.fullmatch, filled)) and not _recur(names, columns)


def _narrowest(fits: frozenset[str]) -> bool:
    return not fits <= {*_TEXT, "boolean"}


def _is_typed(found: tuple[Avro, ...]) -> bool:
    return bool(found) and found[0] not in _TEXT


def _recur(names: Sequence[str], columns: Sequence[pa.Array]) -> bool:
    """Whether a name occurs again as a value in its own column."""
    return any(
        pc.any(pc.equal(column, pa.scalar(name.encode(), column.type))).as_py()
        for name, column in zip(names, columns, strict=False)
    )
