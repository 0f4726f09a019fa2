"""A sample of a CSV file in, the draft of its table out."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.csv_rows import row_spans
from millrace.infer.csv_dialect import CsvGuess, cells_of, layout_of, null_text_of, whole_lines, written_as
from millrace.infer.draft import Draft, Drafted, proposed, unusable, with_key
from millrace.infer.evidence import NOTHING, Evidence, bytes_evidence, fitting, text_evidence
from millrace.infer.keys import KeyFinder
from millrace.infer.sampling import LATIN1, UTF8, FileSample, as_utf8, encoding_of
from millrace.model.chunk import TextLayout
from millrace.model.columns import MAX_COLUMNS
from millrace.model.errors import Invalid
from millrace.model.table import CsvDialect
from millrace.validate.cells import is_utf8

_AT_ONCE = 1 << 20
_LIKE_A_NAME = re.compile(r"[^\W\d][\w .\-/()#%:+&']{0,99}")
_TEXT = ("string", "bytes")


def draft_csv(sample: FileSample, table: str) -> Drafted:
    encoding = encoding_of(sample)
    text = as_utf8(sample, encoding)
    written = written_as(_start(text.head))
    if encoding == UTF8 and not is_utf8(_first_row(text.head, written)):
        # Names of columns must be UTF-8. So these bytes are not damage: the file has another encoding.
        encoding, text = LATIN1, as_utf8(sample, LATIN1)
        written = written_as(_start(text.head))
    if len(written.first_row) > MAX_COLUMNS:
        raise Invalid(f"The file has {len(written.first_row)} columns.", remedy=f"A table has up to {MAX_COLUMNS}.")
    head = _start(text.head)
    rest = head[len(_first_row(head, written)) :]
    null_text = null_text_of(rest, written)
    header = _is_heading(written, whole_lines(rest), null_text)
    names = _names(written, header)
    dialect = CsvDialect(header, written.delimiter, written.quote, null_text, encoding)
    layout = layout_of(len(names), written.delimiter, written.quote, null_text)
    bodies = _bodies(rest if header else head, text, layout)
    return _drawn(table, dialect, names, layout, bodies)


def _start(head: bytes) -> bytes:
    """The text without blank lines at its start."""
    return head.lstrip(b"\r\n")


def _first_row(head: bytes, written: CsvGuess) -> bytes:
    start = _start(head)
    spans = row_spans(whole_lines(start), written.delimiter, written.quote)
    return start[: int(spans.ends[0])] if len(spans.ends) else start


def _names(written: CsvGuess, header: bool) -> list[str]:
    if not header:
        return [f"column_{number}" for number in range(1, len(written.first_row) + 1)]
    return [name.strip() for name in written.first_row]


def _bodies(head: bytes, text: FileSample, layout: TextLayout) -> list[bytes]:
    """The sample in bodies of whole rows."""
    spans = row_spans(head, layout.delimiter, layout.quote)
    if not len(spans.starts):
        return []
    # A head that is not the whole file may end inside a row.
    end = len(head) if text.is_whole else int(spans.starts[-1])
    bounds, start = [], 0
    for at in spans.starts[1:].tolist():
        if at - start >= _AT_ONCE and at <= end:
            bounds.append((start, at))
            start = at
    bodies = [head[first:last] for first, last in [*bounds, (start, end)] if last > first]
    return bodies + [body for piece in text.pieces if (body := _aligned(piece, layout))]


def _aligned(piece: bytes, layout: TextLayout) -> bytes:
    """The whole rows of a piece that begins anywhere, read as if outside quotes; or inside, if its rows agree better so."""
    outside = _whole_rows(piece, layout)
    if layout.quote.encode() not in piece or not _strays(outside, layout):
        return outside
    inside = _whole_rows(layout.quote.encode() + piece, layout)
    return inside if _strays(inside, layout) < _strays(outside, layout) else outside


def _whole_rows(piece: bytes, layout: TextLayout) -> bytes:
    starts = row_spans(piece, layout.delimiter, layout.quote).starts
    return piece[int(starts[1]) : int(starts[-1])] if len(starts) > 2 else b""


def _strays(body: bytes, layout: TextLayout) -> int:
    cells = cells_of(body, layout, ()) if body else None
    return len(cells.miscounted) if cells else 0


def _drawn(
    table: str, dialect: CsvDialect, names: Sequence[str], layout: TextLayout, bodies: Sequence[bytes]
) -> Drafted:
    shown: dict[str, Evidence] = dict.fromkeys(layout.columns, NOTHING)
    watch, rows = KeyFinder(), 0
    for body in bodies:
        cells = cells_of(body, layout)
        if cells is None:
            continue
        for place, column in cells.columns.items():
            shown[place] = shown[place].merged(bytes_evidence(column, shown[place].fits))
        by_name = {names[int(place)]: column for place, column in cells.columns.items()}
        watch.add(by_name, cells.rows - len(cells.miscounted))
        rows += cells.rows
    refused = unusable(names)
    pairs = zip(names, shown.values(), strict=True)
    columns = [proposed(name, evidence) for name, evidence in pairs if name not in refused]
    draft = Draft(table, "csv", tuple(filter(None, columns)), csv=dialect, left_out=refused)
    return Drafted(with_key(draft, watch), rows)


def _is_heading(written: CsvGuess, rest: bytes, null_text: str) -> bool:
    """Whether the first row is a header. `rest` are the rows behind it."""
    names = [name.strip() for name in written.first_row]
    filled = [name for name in names if name]
    if not filled or len(unusable(names)) == len(set(names)):
        return False
    if any(not text_evidence(pa.array([name])).fits <= {*_TEXT, "boolean"} for name in filled):
        # A number, a date or the like is data.
        return False
    cells = cells_of(rest, layout_of(len(names), written.delimiter, written.quote, null_text))
    columns = [] if cells is None else list(cells.columns.values())
    if any(types[0] not in _TEXT for column in columns if (types := fitting(bytes_evidence(column)))):
        return True
    return len(filled) * 2 > len(names) and all(map(_LIKE_A_NAME.fullmatch, filled)) and not _recur(names, columns)


def _recur(names: Sequence[str], columns: Sequence[pa.Array]) -> bool:
    """Whether a name occurs again as a value in its own column."""
    return any(
        pc.any(pc.equal(column, pa.scalar(name.encode(), column.type))).as_py()
        for name, column in zip(names, columns, strict=False)
    )
