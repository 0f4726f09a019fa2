"""Streamed rows as bytes: what is a row, what is a frame, what a request's body holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.formats.line_cut import JsonLines
from millrace.model.errors import Invalid, TooLarge
from millrace.model.frames import (
    MAX_FRAME_BYTES,
    MAX_SENT_ROW_BYTES,
    checked_sender,
    count_rows,
    cut_long_row,
    pack_frame,
    rows_of_body,
    unpack_frame,
    whole_rows,
)


@given(st.lists(st.sampled_from([b"a", b"{}", b" ", b"\t", b"\r", b"\n", b"\n\n", b"\x00", b"\x0b", "é".encode()])))
def test_rows_are_counted_as_the_judge_counts_them(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    rows = whole_rows(body)
    assert count_rows(rows) == JsonLines().all_rows(body).rows == JsonLines().all_rows(rows).rows
    assert [line.strip() for line in rows.split(b"\n") if line.strip(b" \t\r")] == [
        line.strip() for line in body.split(b"\n") if line.strip(b" \t\r")
    ]
    assert rows.endswith(b"\n") or not rows


def test_a_frame_is_read_back() -> None:
    assert unpack_frame(pack_frame(7, b'{"a": 1}\n{"a": 2}')) == (7, b'{"a": 1}\n{"a": 2}\n')
    assert unpack_frame(b"12\n") == (12, b"")


@pytest.mark.parametrize(
    "frame", [b"", b"{}\n", b"-1\n{}\n", b" 1\n{}", b"9" * 30 + b"\n{}", b"\n{}", "١\n{}".encode()]
)
def test_a_frame_without_a_number_is_refused(frame: bytes) -> None:
    with pytest.raises(Invalid):
        unpack_frame(frame)


def test_a_frame_over_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge):
        unpack_frame(pack_frame(1, b"x" * MAX_FRAME_BYTES))


def test_a_row_too_long_becomes_one_that_is_no_json_and_fits() -> None:
    row = b'{"a": 1}' + b" " * MAX_FRAME_BYTES + b"\n"
    cut = cut_long_row(row)
    assert len(cut) <= MAX_SENT_ROW_BYTES
    assert cut.startswith(b'{"a": 1}')
    assert cut.strip().endswith("…".encode())
    assert count_rows(whole_rows(cut)) == 1
    unpack_frame(pack_frame(10**18, cut))
    assert cut_long_row(b"{}\n") == b"{}\n"


def test_an_array_is_taken_apart_without_touching_its_values() -> None:
    body = b'\xef\xbb\xbf [ {"id": 222277164261810113020, "x": 1.10,\r\n "t": "a, ]"}, 7 ,\n[1, [2]], "s"\n] \n'
    assert rows_of_body(body).splitlines() == [
        b'{"id": 222277164261810113020, "x": 1.10,   "t": "a, ]"}',
        b"7",
        b"[1, [2]]",
        b'"s"',
    ]
    assert rows_of_body(b"[]") == b""
    assert rows_of_body(b"[%s]" % (b"1" * 5000)) == b"1" * 5000 + b"\n"


@pytest.mark.parametrize(
    "body", [b"[", b"[1", b"[1,]", b"[1 2]", b"[1] 2", b"[" * 100_000, b"[,]", b"[\xff]", b'["a\nb"]']
)
def test_what_only_looks_like_an_array_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        rows_of_body(body)


def test_lines_are_taken_as_they_are() -> None:
    assert rows_of_body(b'{"a": 1}\n\nnot json\n\xff') == b'{"a": 1}\nnot json\n\xff\n'


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 201, "a\n"])
def test_names_of_streams(name: str) -> None:
    with pytest.raises(Invalid):
        checked_sender(name)
    assert checked_sender("orders-2026/11:15") == "orders-2026/11:15"
