"""Rejected rows as pages and as files: in order, each once, whatever files hold them and whatever arrives meanwhile."""

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.exchange.home import Home
from millrace.lake.compact import run
from millrace.lake.errors_table import ERRORS_SCHEMA, REJECTED_SCHEMA, stored_rejected
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import ChunkVerdict
from millrace.model.errors import Invalid
from millrace.model.names import chunk_id
from millrace.read import error_pages, rejected
from millrace.read.error_pages import page
from millrace.read.export import export

MINE = "imp_" + "a" * 26
OTHER = "imp_" + "b" * 26
ROWS_PER_CHUNK = 10


class Errors:
    """The error store of one table."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.table = LakeTable(Store(self.home.table_errors("acme", "orders")), TableSpec("errors", ERRORS_SCHEMA))

    def stage(self, chunks: list[int], import_id: str = MINE) -> StagedFile:
        parts = [self._chunk(number, import_id) for number in chunks]
        described = [
            StagedChunk(chunk_id(import_id, number), place * ROWS_PER_CHUNK, ROWS_PER_CHUNK, number)
            for place, number in enumerate(chunks)
        ]
        return write_data_file(self.table.store, pa.concat_tables(parts), (), f"{import_id}-{chunks[0]:08d}", described)

    def add(self, *files: list[int], import_id: str = MINE) -> None:
        self.table.apply([self.stage(chunks, import_id) for chunks in files])

    def add_rows(self, rows: list[dict[str, Any]], chunk: int = 0) -> None:
        table = pa.Table.from_pylist(rows, REJECTED_SCHEMA)
        stored = stored_rejected(ChunkVerdict(MINE, chunk, chunk, len(rows), 0, len(rows)), table)
        described = [StagedChunk(chunk_id(MINE, chunk), 0, len(rows), chunk)]
        self.table.apply([write_data_file(self.table.store, stored, (), f"{MINE}-{chunk:08d}", described)])

    def page(self, cursor: str | None = None, limit: int = 7, import_id: str = MINE) -> error_pages.ErrorPage:
        return page(self.table.store, import_id, cursor, limit)

    def pages(self, limit: int = 7, import_id: str = MINE) -> list[int]:
        found, cursor = [], None
        while True:
            shown = self.page(cursor, limit, import_id)
            assert len(shown.items) <= limit
            found += [item["row"] for item in shown.items]
            cursor = shown.next
            if cursor is None:
                return found

    def exported(self, format: str = "csv") -> bytes:
        return b"".join(export(self.table.store, MINE, format))

    def _chunk(self, number: int, import_id: str) -> pa.Table:
        rows = [row_of(number * ROWS_PER_CHUNK + n) for n in range(1, ROWS_PER_CHUNK + 1)]
        table = pa.Table.from_pylist(rows, REJECTED_SCHEMA)
        return stored_rejected(ChunkVerdict(import_id, number, number, len(rows), 0, len(rows)), table)


def row_of(row: int) -> dict[str, Any]:
    reasons = [
        {"column": "a", "rule": "type", "message": f"no number in row {row}", "value": "x"},
        {"column": None, "rule": "shape", "message": "too few cells", "value": None},
    ]
    return {"row": row, "line": row + 1, "raw": b"x,%d" % row, "reasons": reasons}


def rows_of(*chunks: int) -> list[int]:
    return [number * ROWS_PER_CHUNK + n for number in sorted(chunks) for n in range(1, ROWS_PER_CHUNK + 1)]


@pytest.fixture
def errors(tmp_path: Path) -> Errors:
    return Errors(tmp_path)


def test_nothing_rejected_is_an_empty_page(errors: Errors) -> None:
    assert errors.page() == error_pages.ErrorPage([], None)
    errors.add([0], import_id=OTHER)
    assert errors.page() == error_pages.ErrorPage([], None)


def test_an_item_is_the_row_with_every_reason(errors: Errors) -> None:
    errors.add([3])
    assert errors.page(limit=1).items == [
        {
            "row": 31,
            "line": 32,
            "raw": "x,31",
            "reasons": [
                {"column": "a", "rule": "type", "message": "no number in row 31", "value": "x"},
                {"column": None, "rule": "shape", "message": "too few cells", "value": None},
            ],
            "state": "open",
        }
    ]


@pytest.mark.parametrize(
    "files",
    [
        [[0, 1, 2, 3]],
        [[0, 2, 4], [1, 3, 5]],
        [[5, 9], [0, 4, 8], [1, 2], [7], [3, 6]],
        [[4, 0, 2], [3, 1]],
        [[9, 1], [0, 8], [2]],
    ],
)
@pytest.mark.parametrize("limit", [1, 7, 10, 1000])
def test_pages_follow_the_file_whatever_order_it_was_judged_in(
    errors: Errors, files: list[list[int]], limit: int
) -> None:
    errors.add(*files, import_id=OTHER)
    errors.add(*files)
    assert errors.pages(limit) == rows_of(*(number for file in files for number in file))


def test_more_files_than_are_kept_open(errors: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected, "MOST_OPEN_FILES", 2)
    chunks = list(range(40))
    errors.add(*(chunks[start::8] for start in range(8)))
    assert errors.pages(limit=33) == rows_of(*chunks)


def test_a_chunk_that_was_judged_twice_is_shown_once(errors: Errors) -> None:
    errors.add([0, 1])
    errors.add([1, 2], [0])
    errors.add([2, 3, 1])
    assert errors.pages() == rows_of(0, 1, 2, 3)


def test_paging_is_stable_while_more_arrives(errors: Errors) -> None:
    errors.add([1, 4])
    first = errors.page(limit=5)
    errors.add([2], [0, 6])
    seen, cursor = [item["row"] for item in first.items], first.next
    while cursor:
        shown = errors.page(cursor, limit=5)
        seen += [item["row"] for item in shown.items]
        cursor = shown.next
    # Chunk 0 stands before the cursor: a new pass shows it, this one repeats and loses nothing.
    assert seen == rows_of(1, 2, 4, 6)
    assert errors.pages() == rows_of(0, 1, 2, 4, 6)


def test_compaction_in_the_middle_of_paging_changes_nothing(errors: Errors) -> None:
    errors.add([2, 0], [1], [5, 3])
    errors.add([4, 1], import_id=OTHER)
    first = errors.page(limit=14)
    compacted = run(errors.table.store, errors.table.spec, tuple(errors.table.snapshot().files.values()))
    assert compacted is not None
    rest = errors.page(first.next, limit=1000)
    assert [item["row"] for item in (*first.items, *rest.items)] == rows_of(0, 1, 2, 3, 5)
    assert errors.pages(import_id=OTHER) == rows_of(1, 4)


def test_the_order_holds_for_any_cut_into_files(errors: Errors) -> None:
    chance = random.Random(3)
    chunks = list(range(60))
    chance.shuffle(chunks)
    while chunks:
        cut = chance.randint(1, 9)
        errors.add(chunks[:cut])
        chunks = chunks[cut:]
    shown = errors.pages(limit=37)
    assert shown == rows_of(*range(60))
    assert shown == [json.loads(line)["row"] for line in errors.exported("jsonl").splitlines()]


def test_a_page_of_large_rows_ends_early(errors: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_pages, "MOST_PAGE_BYTES", 2000)
    rows = [{**row_of(n), "raw": b"y" * 900} for n in range(1, 8)]
    errors.add_rows(rows)
    assert len(errors.page(limit=7).items) == 1
    assert errors.pages() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("cursor", ["x", "!!", "MTI", "LTEuLTE", "💧", "MC4x" * 50])
def test_a_cursor_of_somebody_else_is_refused(errors: Errors, cursor: str) -> None:
    with pytest.raises(Invalid, match="is no cursor") as refusal:
        errors.page(cursor)
    assert refusal.value.code == "bad_cursor"


def test_bytes_that_are_no_text_are_shown_with_a_sign(errors: Errors) -> None:
    errors.add_rows([{**row_of(1), "raw": b"caf\xe9,\x00"}, row_of(2)])
    assert [item["raw"] for item in errors.page().items] == ["caf\ufffd,\x00", "x,2"]
    assert "caf\ufffd" in errors.exported().decode()


def test_csv_has_a_line_for_each_reason(errors: Errors) -> None:
    errors.add([0])
    lines = list(csv.reader(io.StringIO(errors.exported().decode(), newline="")))
    assert lines[0] == ["row", "line", "column", "rule", "message", "value", "raw"]
    assert lines[1] == ["1", "2", "a", "type", "no number in row 1", "x", "x,1"]
    assert lines[2] == ["1", "2", "", "shape", "too few cells", "", "x,1"]
    assert len(lines) == 1 + 2 * ROWS_PER_CHUNK


def test_a_row_of_a_file_without_lines_has_none(errors: Errors) -> None:
    errors.add_rows([{**row_of(1), "line": 0}])
    assert errors.page().items[0]["line"] is None
    assert json.loads(errors.exported("jsonl"))["line"] is None
    assert errors.exported().splitlines()[1].startswith(b'1,,"a"')


def test_csv_without_rows_has_its_header(errors: Errors) -> None:
    assert errors.exported() == b'"row","line","column","rule","message","value","raw"\n'
    assert errors.exported("jsonl") == b""


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\x00=1", "＝1", '=HYPERLINK("http://x","y")']
HARMLESS = ["1+1=2", "a=b", "'=1", "", "x\n=1", ' "=1', "é"]


def test_no_cell_of_the_csv_can_become_a_formula(errors: Errors) -> None:
    cells = FORMULAS + HARMLESS
    rows = [
        {
            "row": n,
            "line": n,
            "raw": cell.encode(),
            "reasons": [{"column": cell, "rule": cell, "message": cell, "value": cell}],
        }
        for n, cell in enumerate(cells, 1)
    ]
    errors.add_rows(rows)
    lines = list(csv.reader(io.StringIO(errors.exported().decode(), newline="")))[1:]
    shown = [f"'{cell}" for cell in FORMULAS] + HARMLESS
    assert [line[2:] for line in lines] == [[cell] * 5 for cell in shown]
    assert [json.loads(line)["raw"] for line in errors.exported("jsonl").splitlines()] == cells
    stored = [
        pq.read_table(errors.table.store.path(file.name))["raw"] for file in errors.table.snapshot().files.values()
    ]
    assert stored[0].to_pylist() == [cell.encode() for cell in cells]


def test_rows_with_many_reasons_leave_in_small_pieces(errors: Errors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected, "MOST_REASONS", 5)
    wide = [{**row_of(n), "reasons": row_of(n)["reasons"] * n} for n in range(1, 6)]
    errors.add_rows(wide)
    pieces = list(export(errors.table.store, MINE, "csv"))
    assert [piece.count(b"\n") for piece in pieces] == [1, 2, 4, 6, 8, 10]
    lines = list(csv.reader(io.StringIO(b"".join(pieces).decode(), newline="")))[1:]
    assert [line[0] for line in lines] == [str(n) for n in range(1, 6) for _ in range(2 * n)]
    assert [line[6] for line in lines] == [f"x,{n}" for n in range(1, 6) for _ in range(2 * n)]
    assert errors.pages(limit=2) == [1, 2, 3, 4, 5]


def test_an_unknown_format_is_refused_before_anything_is_sent(errors: Errors) -> None:
    with pytest.raises(Invalid, match="csv, jsonl or file"):
        errors.exported("xlsx")
