"""Lines that repeat the header: skipped and counted wherever the chunks begin, or rejected with one reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.declare.table import parse_table
from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.formats.repeated_header import repeated_rows
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import Definition, define
from millrace.validate.judge import JudgedChunk, judge
from tests.support.examples import examples

BOM = b"\xef\xbb\xbf"
FIELDS = [
    {"name": "id", "type": "long", "header": "Order id"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "size", "type": "int"},
]
HEADER = b"Order id,note,size\n"


def table(**words: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": FIELDS}
    return define("acme", parse_table({"schema": schema, "primary_key": ["id"], **words}), 1)


def cut(text: bytes, definition: Definition | None = None, piece_bytes: int = 1 << 20) -> tuple[list[CutPiece], int]:
    limits = PieceLimits(piece_bytes=piece_bytes, row_bytes=4096)
    cutter = open_cutter(definition or table(), UploadOptions(), limits=limits)
    pieces = [*cutter.feed(text), *cutter.finish()]
    return pieces, cutter.repeated_headers()


def judged(piece: CutPiece, definition: Definition, **stamp: Any) -> JudgedChunk:
    header = ChunkHeader(
        "imp_1", 0, 7, definition.fingerprint, piece.encoding, piece.first_row, piece.first_line, piece.rows,
        len(piece.body), 0, piece.layout, piece.oversize, **stamp,
    )  # fmt: skip
    return judge(header, piece.body, definition)


def rows_of(text: bytes, piece_bytes: int = 1 << 20) -> tuple[list[tuple[int, int]], int]:
    """(_row, id) of every accepted row, and the number of skipped lines."""
    definition = table()
    pieces, skipped = cut(text, definition, piece_bytes)
    results = [judged(piece, definition).accepted for piece in pieces]
    found = [
        (row, one)
        for rows in results
        for row, one in zip(rows["_row"].to_pylist(), rows["id"].to_pylist(), strict=True)
    ]
    return found, skipped


def test_a_repeated_header_is_no_row_and_is_counted() -> None:
    text = HEADER + b"1,a,1\n" + HEADER + b"2,b,2\n3,c,3\n" + HEADER
    assert rows_of(text) == ([(1, 1), (2, 2), (3, 3)], 2)


@pytest.mark.parametrize(
    "line",
    [
        b"Order id,note,size",
        b'"Order id","note","size"',
        b'Order id , "note",size',
        b' Order id,\tnote,"size" ',
        BOM + b"Order id,note,size",
        BOM + b'"Order id",note,size',
        b"Order id,note,size\r",
    ],
)
def test_the_same_cells_after_unquoting_and_trimming_are_the_header(line: bytes) -> None:
    expected = 0 if line.startswith(b"Order id , ") else 1  # A quote behind a space is text.
    pieces, skipped = cut(HEADER + b"1,a,1\n" + line + b"\n2,b,2\n")
    assert skipped == expected
    assert sum(piece.rows for piece in pieces) == 3 - expected


@pytest.mark.parametrize(
    "line", [b"order id,note,size", b"Order id,note", b"Order id,note,size,x", b"xOrder id,note,size"]
)
def test_a_line_that_only_looks_like_the_header_is_a_row(line: bytes) -> None:
    pieces, skipped = cut(HEADER + b"1,a,1\n" + line + b"\n")
    assert (sum(piece.rows for piece in pieces), skipped) == (2, 0)


def test_a_header_inside_a_quoted_cell_is_text() -> None:
    pieces, skipped = cut(HEADER + b'1,"x\n' + HEADER + b'y",1\n')
    assert (sum(piece.rows for piece in pieces), skipped) == (1, 0)


def test_rows_behind_it_keep_their_lines() -> None:
    definition = table()
    pieces, _ = cut(HEADER + b"1,a,1\n" + HEADER + b"bad,b,2\n", definition)
    rejected = judged(pieces[0], definition).rejected
    assert rejected is not None
    assert (rejected["row"].to_pylist(), rejected["line"].to_pylist()) == ([2], [4])


def test_a_header_over_several_lines_keeps_the_lines_behind_it() -> None:
    fields = [{"name": "id", "type": "long", "header": "Order\nid"}, {"name": "size", "type": "int"}]
    definition = define("acme", parse_table({"schema": {"type": "record", "name": "t", "fields": fields}}), 1)
    pieces, skipped = cut(b'"Order\nid",size\n1,1\n"Order\nid",size\nbad,2\n', definition)
    rejected = judged(pieces[0], definition).rejected
    assert skipped == 1
    assert rejected is not None
    assert rejected["line"].to_pylist() == [6]


def test_files_with_byte_order_marks_may_be_put_together() -> None:
    one, two = BOM + HEADER + b"1,a,1\n", BOM + HEADER + b"2,b,2\n"
    assert rows_of(one + two + one) == ([(1, 1), (2, 2), (3, 1)], 2)


def test_columns_that_share_a_title_are_compared_by_it() -> None:
    definition = table(unknown_fields="ignore")
    head = b"Order id,note,size,x,x\n"
    pieces, skipped = cut(head + b"1,a,1,,\n" + head + b"2,a,1,,\n", definition)
    assert (sum(piece.rows for piece in pieces), skipped) == (2, 1)


def test_without_a_header_no_line_repeats_it() -> None:
    pieces, skipped = cut(b"id,note,size\n", table(csv={"header": False}))
    assert (pieces[0].rows, skipped) == (1, 0)


def test_if_the_table_says_so_it_is_rejected_with_one_reason() -> None:
    definition = table(csv={"repeated_header": "reject"}, rules=[{"column": "size", "min": 1}])
    pieces, skipped = cut(HEADER + b"1,a,1\n" + BOM + HEADER + b"x,b,2\n", definition)
    assert skipped == 0
    result = judged(pieces[0], definition)
    assert result.accepted["id"].to_pylist() == [1]
    assert result.rejected is not None
    reasons = [[(one["column"], one["rule"]) for one in row] for row in result.rejected["reasons"].to_pylist()]
    assert reasons == [[(None, "repeated_header")], [("id", "type")]]
    assert result.rejected["row"].to_pylist() == [2, 3]


def test_a_replayed_header_has_one_reason_too() -> None:
    layout = TextLayout(("Order id", "note", "size"), ",", '"', "", headed=True)
    piece = CutPiece(HEADER + b"5,a,1\n", "csv", 4, 0, 2, layout)
    result = judged(piece, table(), row_numbers=(4, 9))
    assert result.accepted["id"].to_pylist() == [5]
    assert result.rejected is not None
    assert [one["rule"] for one in result.rejected["reasons"][0].as_py()] == ["repeated_header"]


def test_an_upload_that_goes_on_keeps_its_count() -> None:
    text = HEADER + b"1,a,1\n" * 20 + HEADER + b"2,b,2\n" * 40 + HEADER
    limits = PieceLimits(piece_bytes=64, row_bytes=4096)
    whole = open_cutter(table(), UploadOptions(), limits=limits)
    points = []
    for _ in whole.feed(text):
        points.append(json.loads(json.dumps(whole.resume_point())))
    list(whole.finish())
    assert whole.repeated_headers() == 2
    for point in points:
        again = open_cutter(table(), UploadOptions(), resume=point, limits=limits)
        list(again.feed(text[point["offset"] :]))
        list(again.finish())
        assert (again.repeated_headers(), again.rows_cut()) == (2, 60)


LINES = st.sampled_from(
    [HEADER, BOM + HEADER, b"1,a,1\n", b'2,"x\ny",2\n', b'"Order id",note,size\r\n', b"\n", b'3,"Order id",3\n']
)


@examples(200)
@given(st.lists(LINES, max_size=30), st.integers(30, 200))
def test_it_does_not_matter_where_chunks_begin(lines: list[bytes], piece_bytes: int) -> None:
    text = HEADER + b"".join(lines)
    assert rows_of(text, piece_bytes) == rows_of(text)
    skipped = sum(b"Order id" in line and b"3," not in line for line in lines)
    assert rows_of(text)[1] == skipped


def test_a_title_that_stands_in_many_rows_is_told_from_the_header() -> None:
    layout = TextLayout(("a", "b"), ",", '"', "", headed=True)
    body = b"a,c\n" * 1000 + b"a,b\n" + b"b,a\n" * 1000
    assert repeated_rows(body, layout).tolist() == [1000]
