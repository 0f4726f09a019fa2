"""The first row of a CSV file: whether it is a header, and which later rows repeat it."""

import re
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.formats.repeated_header import without_repeats
from millrace.infer.avro import avro_type
from millrace.infer.candidates import misfits
from millrace.infer.csv_dialect import CsvGuess, cells_of, layout_of, whole_lines
from millrace.infer.draft import unusable
from millrace.infer.evidence import bytes_evidence, fitting
from millrace.infer.guessing import guess_column
from millrace.model.chunk import TextLayout
from millrace.model.written import AS_USUAL

# A first row that holds one of these is data.
_DATA = ("double", "date", "timestamp-micros", "time-micros", "uuid")
_LIKE_A_NAME = re.compile(r"[^\W\d][\w .\-/()#%:+&'°€$]{0,99}")
_LIKE_A_WORD_OF_PROGRAMS = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[A-Z][A-Z0-9_]*|[a-z]+")


def row_end(text: bytes, written: CsvGuess) -> int:
    """The end of the first row of a text that begins with one."""
    spans = row_spans(whole_lines(text), written.delimiter, written.quote)
    return int(spans.ends[0]) if len(spans.ends) else len(text)


def is_heading(text: bytes, written: CsvGuess, *, proved: bool = False) -> bool:
    """Whether the first row of the text is a header: it cannot be data, or it looks like names and no name occurs again as a
    value of its column. `proved`: names alone are not enough."""
    names = [name.strip() for name in written.first_row]
    filled = [name for name in names if name]
    if not filled or len(unusable(names)) == len(set(names)):
        return False
    if any(not misfits(avro_type(kind), AS_USUAL, pl.Series(filled)).all() for kind in _DATA):
        return False
    rest, again = without_header(whole_lines(text[row_end(text, written) :]), written)
    cells = cells_of(rest, layout_of(len(names), written.delimiter, written.quote))
    others = [] if cells is None else list(cells.columns.values())
    if any(map(_has_type, others)):
        return True
    if proved or not (len(filled) * 2 > len(names) and all(map(_LIKE_A_NAME.fullmatch, filled))):
        return False
    # Rows of text may be equal by chance. Names of programs are not.
    sure = not again or all(map(_LIKE_A_WORD_OF_PROGRAMS.fullmatch, filled))
    return sure and not _recur(names, others)


def without_header(rows: bytes, written: CsvGuess) -> tuple[bytes, int]:
    """The rows without those that repeat the first row of the file, and the number of these."""
    titles = tuple(title.strip() for title in written.first_row)
    return without_repeats(rows, TextLayout(titles, written.delimiter, written.quote, "", headed=True))


def _has_type(cells: pa.Array) -> bool:
    types = fitting(bytes_evidence(cells))
    if not types or types[0] == "bytes":
        return False
    if types[0] != "string":
        return True
    return not guess_column("", cells.drop_null().view(pa.string()), cells.null_count).is_text


def _recur(names: Sequence[str], columns: Sequence[pa.Array]) -> bool:
    """Whether a name occurs again as a value in its own column."""
    return any(
        pc.any(pc.equal(column, pa.scalar(name.encode(), column.type))).as_py()
        for name, column in zip(names, columns, strict=False)
    )
