"""Rejected rows as a file that people correct and send back: their original text, with the column `_row` in front.

CSV is written as it came: header, delimiter, quote, encoding and line ends. It always has a header, which names the
column `_row`. Rows that came as JSON Lines, Avro or Parquet are JSON Lines. Rows that were not kept whole are left out."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.numbered import header_line
from millrace.lake.store import Store
from millrace.model.chunk import TextLayout
from millrace.model.columns import ROW_COLUMN
from millrace.read.rejected import rejected_rows
from millrace.read.row_states import RowStates
from millrace.read.whole_rows import kept_whole

RAW_MEMBER = "_raw"
_WITH_MARK = {"utf-16": (codecs.BOM_UTF16_LE, "utf-16-le")}


@dataclass(frozen=True, slots=True)
class OriginalForm:
    """How the rows were written. Without a layout they are lines of JSON."""

    layout: TextLayout | None = None
    line_end: str = "\n"
    encoding: str = "utf-8"

    @property
    def suffix(self) -> str:
        return "jsonl" if self.layout is None else "csv"


def original_file(errors: Store, import_id: str, form: OriginalForm, states: RowStates) -> Iterator[bytes]:
    """Pieces of the file."""
    found = (kept_whole(states.only_wanted(rejected.rows)) for rejected in rejected_rows(errors, import_id))
    if form.layout is None:
        yield from map(_json_lines, found)
        return
    mark, encoding = _WITH_MARK.get(form.encoding, (b"", form.encoding))
    end = form.line_end.encode()
    numbered = replace(form.layout, columns=(ROW_COLUMN, *form.layout.columns))
    yield mark + _encoded(header_line(numbered) + end, encoding)
    for rows in found:
        yield _encoded(_csv_lines(rows, form.layout.delimiter.encode(), end), encoding)


def _csv_lines(rows: pa.RecordBatch, delimiter: bytes, end: bytes) -> bytes:
    numbers = rows["row"].cast(pa.string()).cast(pa.binary())
    lines = pc.binary_join_element_wise(numbers, delimiter, rows["raw"], end, b"")
    return b"".join(lines.to_pylist())


def _encoded(text: bytes, encoding: str) -> bytes:
    """The platform has text as UTF-8. Bytes that are not UTF-8 can only have come in a file of that encoding."""
    return text if encoding == "utf-8" else text.decode("utf-8", "replace").encode(encoding, "replace")


def _json_lines(rows: pa.RecordBatch) -> bytes:
    pairs = zip(rows["row"].to_pylist(), rows["raw"].to_pylist(), strict=True)
    return b"".join(_json_line(number, raw) for number, raw in pairs)


def _json_line(number: int, raw: bytes) -> bytes:
    text = raw.strip()
    if not text.startswith(b"{"):
        shown = {ROW_COLUMN: number, RAW_MEMBER: text.decode("utf-8", "replace")}
        return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)
    members = text[1:].lstrip()
    return b'{"%b":%d%b%b\n' % (ROW_COLUMN.encode(), number, b"" if members.startswith(b"}") else b",", members)
