"""All rejected rows of one import as a stream of CSV or JSON lines, in the order of the user's file, in bounded memory.

In CSV each reason is a line, and a cell that a spreadsheet would read as a formula gets a single quote in front. JSON Lines
and the store keep all bytes unchanged."""

import io
from collections.abc import Iterator
from itertools import chain

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from millrace.lake.store import Store
from millrace.model.errors import Invalid
from millrace.read.error_pages import shown
from millrace.read.rejected import rejected_rows
from millrace.read.row_states import ALL_OPEN, RowStates, numbers_of

CSV_COLUMNS = ["row", "line", "column", "rule", "message", "value", "raw"]
# Characters that start a formula in Excel, LibreOffice and Google Sheets, or that they skip before one. Some also accept
# the full-width forms.
FORMULA_START = "^[=+\\-@\t\r\n\\x00＝＋－＠]"


def export(errors: Store, import_id: str, format: str = "csv", states: RowStates = ALL_OPEN) -> Iterator[bytes]:
    """Pieces of the file. CSV has a header even if nothing was rejected."""
    if format not in ("csv", "jsonl"):
        raise Invalid(f"format is {format[:20]!r}.", remedy="Choose csv, jsonl or file.")
    found = (states.only_wanted(rejected.rows) for rejected in rejected_rows(errors, import_id))
    if format == "jsonl":
        return (_json_lines(rows, states) for rows in found)
    header = ",".join(f'"{name}"' for name in CSV_COLUMNS).encode() + b"\n"
    return chain([header], map(_csv, found))


def _json_lines(rows: pa.RecordBatch, states: RowStates) -> bytes:
    pairs = zip(rows.to_pylist(), states.of(numbers_of(rows)), strict=True)
    return b"".join(
        orjson.dumps({**shown(row), "state": state}, option=orjson.OPT_APPEND_NEWLINE) for row, state in pairs
    )


def _csv(rows: pa.RecordBatch) -> bytes:
    reasons = rows["reasons"]
    parents = pc.list_parent_indices(reasons)
    flat = pc.list_flatten(reasons)
    texts = [pc.struct_field(flat, name) for name in ("column", "rule", "message", "value")]
    cells = [_harmless(column) for column in (*texts, _decoded(rows["raw"]).take(parents))]
    line = pc.if_else(pc.equal(rows["line"], 0), pa.scalar(None, pa.int64()), rows["line"])
    table = pa.table([rows["row"].take(parents), line.take(parents), *cells], names=CSV_COLUMNS)
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


def _harmless(cells: pa.Array) -> pa.Array:
    is_formula = pc.match_substring_regex(cells, FORMULA_START)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", cells, ""), cells)


def _decoded(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in raw.to_pylist()], pa.string())
