"""CSV uploads: headers, encodings, broken quotes and rows over the limit."""

import contextlib
import time
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import psutil
import pytest

from millrace.formats.csv_rows import row_spans
from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.formats.text_cut import MAX_UNCLOSED
from millrace.model.errors import Invalid, TooLarge
from millrace.model.table import CsvDialect, Definition, TableDeclaration, define

MIB = 1 << 20


def table(header: bool = True, **changes: Any) -> Definition:
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "size", "type": "int", "default": 3},
    ]
    schema = {"type": "record", "name": "x", "fields": fields}
    dialect = CsvDialect(header=header, **changes.pop("csv", {}))
    return define("t", TableDeclaration("x", schema, csv=dialect, **changes), 1)


def cut(text: bytes, definition: Definition | None = None, **options: Any) -> list[CutPiece]:
    return cut_pieces([text], definition, **options)


def cut_pieces(pieces: Iterable[bytes], definition: Definition | None = None, **options: Any) -> list[CutPiece]:
    limits = options.pop("limits", None)
    cutter = open_cutter(definition or table(), UploadOptions(**options), limits=limits)
    return [*(found for piece in pieces for found in cutter.feed(piece)), *cutter.finish()]


def test_header_columns_may_come_in_any_order_with_spaces_and_quotes() -> None:
    (found,) = cut(b'note, "x" ,name,id\n1,2,3,4\n', table(unknown_fields="ignore"))
    assert found.layout is not None
    assert found.layout.columns == ("note", '"x"', "name", "id")
    assert (found.body, found.first_row, found.first_line, found.rows) == (b"1,2,3,4\n", 1, 2, 1)


def test_columns_that_can_be_filled_may_be_absent() -> None:
    (found,) = cut(b'"name",id\na,1')
    assert found.layout is not None
    assert found.layout.columns == ("name", "id")


def test_without_header_the_declared_order_holds() -> None:
    (found,) = cut(b"1,a,,2\n", table(header=False))
    assert found.layout is not None
    assert found.layout.columns == ("id", "name", "note", "size")
    assert found.first_line == 1


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"id,note\n", "lacks the column 'name'"),
        (b"id,name,id\n", "'id' more than once"),
        (b"id,name,colour\n", "'colour', which the table does not know"),
        (b"ID,name\n", "lacks the column 'id'"),
        (b"id;name;note\n", "separated by ';'"),
        (b"id\tname\tnote\n", "separated by '\\t'"),
        (b"id,na\xffme\n", "is not UTF-8"),
        (b",".join(b"c%d" % n for n in range(100_000)) + b"\n", "more than 2004 columns"),
        (b"x" * (5 * MIB), "longer than 4 MiB"),
        (b'"id,name\n' + b"1,a\n" * (2 * MIB), "longer than 4 MiB"),
        (b'id,"name\n', "line 1 has a quote that never closes"),
        (b'id,;"name\n', "lacks the column 'name'"),
    ],
)
def test_a_header_that_does_not_suit_is_refused_with_a_remedy(header: bytes, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        cut(header + b"1,a\n")
    assert said in str(refused.value)
    assert refused.value.remedy


def test_a_row_in_place_of_a_header_is_told() -> None:
    with pytest.raises(Invalid) as refused:
        cut(b"1,Ada\n2,Bob\n")
    assert "header=false (--no-header)" in refused.value.remedy
    with pytest.raises(Invalid) as refused:
        cut(b"id,nam\n2,Bob\n")
    assert "header=false" not in refused.value.remedy


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_a_workbook_is_called_one(start: bytes) -> None:
    with pytest.raises(Invalid, match=r"archive|Office") as refused:
        cut(start + b"\0" * 100)
    assert "as CSV" in refused.value.remedy


def test_many_wrong_columns_are_named_in_part() -> None:
    with pytest.raises(Invalid) as refused:
        cut(b"id,name," + b",".join(b"c%d" % n for n in range(30)) + b"\n", file_name="big.csv")
    assert "'c9' and 20 more" in refused.value.message
    assert "'c10'" not in refused.value.message
    assert "big.csv" in refused.value.message


def test_a_missing_key_column_is_refused_even_if_nullable() -> None:
    with pytest.raises(Invalid, match="'note'"):
        cut(b"id,name\n1,a\n", table(primary_key=("note",)))


def test_unknown_columns_that_share_a_name_stay_apart() -> None:
    (found,) = cut(b"id,name,,\n1,a,,\n", table(unknown_fields="ignore"))
    assert found.layout is not None
    assert found.layout.columns == ("id", "name", "", "#4")


@pytest.mark.parametrize("text", [b"", b"\n\r\n\n", b"\xef\xbb\xbf"])
def test_an_upload_without_its_header_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        cut(text)
    assert refused.value.code == "no_header"


@pytest.mark.parametrize("text", [b"id,name\n", b"id,name", b"\n\nid,name\n\n\n"])
def test_an_upload_without_rows_is_one_piece_with_none(text: bytes) -> None:
    (found,) = cut(text)
    assert (found.rows, found.body, found.first_row, found.encoding) == (0, b"", 1, "csv")


@pytest.mark.parametrize("blank", [b"\n", b"\r", b"\r\n", b"\n\r\n\r", b"\r\n" * MIB, b"\r" * (MIB + 1), b"\n\r" * MIB])
def test_blank_lines_before_the_header_count_as_lines(blank: bytes) -> None:
    (found,) = cut(blank + b"id,name\n1,a\n")
    lines = len(blank.replace(b"\r\n", b"\n"))
    assert (found.rows, found.first_line) == (1, lines + 2)


def test_marks_and_encodings_come_out_as_plain_utf8() -> None:
    text = 'id,name\r\n1,"ä\nß"\r\n2,€\r\n'
    expected = '1,"ä\nß"\r\n2,€\r\n'.encode()
    for encoded in (text.encode("utf-8-sig"), text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be")):
        assert cut_pieces(bytes([octet]) for octet in encoded)[0].body == expected
    assert cut(text.encode("utf-16-le"), encoding="utf-16")[0].body == expected
    assert cut(text.encode("windows-1252"), encoding="windows-1252")[0].body == expected
    with pytest.raises(Invalid, match=r"line 2"):
        cut(b"id,name\n1,\x81\n", encoding="windows-1252")
    latin = text.replace("€", "é")
    assert cut(latin.encode("latin-1"), encoding="latin-1")[0].body == latin.encode()[len("id,name\r\n") :]


def test_what_is_not_utf16_is_refused_with_its_line() -> None:
    text = "id,name\n1,a\n2,".encode("utf-16") + b"\x00\xdc\x41\x00" + "\n".encode("utf-16-le")
    for step in (1, len(text)):
        with pytest.raises(Invalid, match="line 3"):
            cut_pieces(text[at : at + step] for at in range(0, len(text), step))
    with pytest.raises(Invalid, match="UTF-16-LE"):
        cut("id,name\n1,a\n".encode("utf-16") + b"x")


def resume_offset(text: bytes) -> int | None:
    cutter = open_cutter(table(), UploadOptions())
    assert len([*cutter.feed(text), *cutter.finish()]) == 1
    point = cutter.resume_point()
    return point and point["offset"]


def test_resume_points_exist_only_where_offsets_are_the_files_own() -> None:
    assert resume_offset(b"id,name\n1,a\n") == 12
    assert resume_offset(b"\xef\xbb\xbfid,name\n1,a\n") == 15
    assert resume_offset("id,name\n1,a\n".encode("utf-16")) is None


def test_a_quote_that_never_closes_costs_its_line_only() -> None:
    rows = b"".join(b'%d,"name %d"\n' % (n, n) for n in range(1000))
    tail = b"7,seven\n" * (MIB // 2 + MIB // 4)
    found = cut(b"id,name\n" + rows + b'7,"open\n' + tail)
    odd = [piece for piece in found if piece.oversize]
    assert len(odd) == 1
    assert odd[0].oversize is not None
    assert odd[0].oversize.rule == "unclosed_quote"
    assert (odd[0].body, odd[0].first_row, odd[0].first_line, odd[0].rows) == (b'7,"open', 1001, 1002, 1)
    assert "line 1002" in odd[0].oversize.message
    assert sum(piece.rows for piece in found) == 1001 + len(tail) // 8
    assert all(a.first_row + a.rows == b.first_row for a, b in pairwise(found))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(("text", "rows"), [(b'%d,"open', [3]), (b'%d,"open', [20]), (b'%d,a","', [7, 8, 9])])
def test_quotes_open_at_the_end_of_a_short_file_cost_their_lines_only(text: bytes, rows: list[int], end: bytes) -> None:
    lines = [text % n if n in rows else b"%d,a" % n for n in range(1, 21)]
    found = cut(end.join([b"id,name", *lines]))
    odd = [piece for piece in found if piece.oversize]
    assert [(piece.body, piece.first_row, piece.first_line) for piece in odd] == [(text % n, n, n + 1) for n in rows]
    assert {piece.oversize.rule for piece in odd if piece.oversize} == {"unclosed_quote"}
    assert sum(piece.rows for piece in found) == 20


@pytest.mark.parametrize("line", [b'x","\n', b'1,"a\n2,b"c\n', b'"\n', b'1,a"\n"2'])
def test_four_megabytes_of_stray_quotes_take_little_time(line: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(Invalid):
        cut((line * MIB)[: 4 * MIB - 1], table(header=False))
    assert time.process_time() - began < 5


def test_a_line_over_the_limit_is_one_short_piece() -> None:
    found = cut(b"id,name\n1,a\n2," + b"x" * (5 * MIB) + b"\r\n3,c\n")
    assert [(piece.rows, piece.first_row, piece.first_line) for piece in found] == [(1, 1, 2), (1, 2, 3), (1, 3, 4)]
    assert found[1].oversize is not None
    assert found[1].oversize.rule == "row_too_long"
    assert len(found[1].body) == 64 << 10
    assert found[2].body == b"3,c\n"


def test_the_end_of_a_line_over_the_limit_may_come_in_two_pieces() -> None:
    found = cut_pieces([b"id,name\n2," + b"x" * (5 * MIB) + b"\r", b"\n3,c\n"])
    assert [(piece.rows, piece.first_line, piece.body[:3]) for piece in found] == [(1, 2, b"2,x"), (1, 3, b"3,c")]


def test_a_line_end_of_two_octets_across_the_target_is_not_torn() -> None:
    small = PieceLimits(piece_bytes=8, row_bytes=64, kept_bytes=8)
    found = cut(b"1,a\r\n2,\r\n3,c\r\n", table(header=False), limits=small)
    assert [(piece.body, piece.first_line) for piece in found] == [(b"1,a\r\n", 1), (b"2,\r\n", 2), (b"3,c\r\n", 3)]
    torn = cut(b"1,aaaa\r\n2,bbbbb\r\n3,c\r\n", table(header=False), limits=small)
    assert [(piece.body, piece.first_line) for piece in torn] == [
        (b"1,aaaa\r\n", 1),
        (b"2,bbbbb\r\n", 2),
        (b"3,c\r\n", 3),
    ]


@pytest.mark.parametrize("size", [63, 64, 65])
def test_a_line_just_over_the_limit_is_too_long_not_unclosed(size: int) -> None:
    small = PieceLimits(piece_bytes=8, row_bytes=64, kept_bytes=8)
    first, second = cut(b"x" * size + b"\n3,c\n" + b"\n" * 100, table(header=False), limits=small)
    assert first.rows == 1
    assert (first.oversize.rule if first.oversize else None) == (None if size < 64 else "row_too_long")
    assert (second.body[:4], second.first_line) == (b"3,c\n", 2)


def test_rows_between_the_target_and_the_limit_stay_whole() -> None:
    row = b'1,"' + b"y\n" * MIB + b'"\n'
    found = cut(b"id,name\n" + row * 3)
    assert [piece.body for piece in found] == [row] * 3
    assert [piece.first_line for piece in found] == [2, 3 + MIB, 4 + 2 * MIB]


def test_pieces_end_at_the_last_row_at_or_before_the_target() -> None:
    found = cut(b"id,name\n" + b"12,4567\n" * MIB)
    assert {len(piece.body) for piece in found} == {MIB}
    assert sum(piece.rows for piece in found) == MIB


def stream_of(total: int, first: bytes, line: bytes) -> Iterable[bytes]:
    yield first
    block = line * (MIB // len(line))
    for _ in range(total // MIB):
        yield block


@pytest.mark.parametrize(
    ("first", "line", "header"),
    [
        (b'1,"open\n', b"2,some more text\n", False),
        (b'1,"open', b"no line end at all ", False),
        (b"1,", b'"', False),
        (b'"', b'""', False),
        (b"", b"\n", False),
        (b"", b"\r", False),
        (b"", b"\n", True),
        (b"", b"\r\n", True),
    ],
)
def test_hostile_text_streams_through_in_bounded_memory_and_linear_time(
    first: bytes, line: bytes, header: bool
) -> None:
    """64 MiB stand for a gigabyte: a quadratic cutter would need minutes."""
    cutter = open_cutter(table(header), UploadOptions())
    began = time.process_time()
    tracemalloc.start()
    for piece in stream_of(64 * MIB, first, line):
        for _ in cutter.feed(piece):
            pass
    with pytest.raises(Invalid) if header else contextlib.nullcontext():
        for _ in cutter.finish():
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150 * MIB
    assert time.process_time() - began < 20


def test_a_quote_that_never_closes_in_a_gigabyte_costs_its_row_only() -> None:
    """Rows behind it are read as if it were not there; memory is that of the chunks in hand."""
    line = b"2,some more text\n"
    cutter = open_cutter(table(header=False), UploadOptions())
    before = psutil.Process().memory_info().rss
    rows, unclosed, peak = 0, 0, 0
    for piece in stream_of(1024 * MIB, b'1,"open\n', line):
        for found in cutter.feed(piece):
            rows += found.rows
            unclosed += found.oversize is not None
        peak = max(peak, psutil.Process().memory_info().rss - before)
    for found in cutter.finish():
        rows += found.rows
        unclosed += found.oversize is not None
    assert (rows, unclosed) == (1 + 1024 * (MIB // len(line)), 1)
    assert peak < 200 * MIB


def test_a_file_of_broken_quotes_is_refused_before_it_takes_for_ever() -> None:
    small = PieceLimits(piece_bytes=1024, row_bytes=4096, kept_bytes=64)
    with pytest.raises(Invalid, match=f"More than {MAX_UNCLOSED} rows"):
        cut(b'x","\n' * 20_000, table(header=False), limits=small)


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(TooLarge, match="1000 bytes"):
        cut(b"id,name\n" + b"1,a\n" * 1000, max_plain_bytes=1000)


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"quote": "ab"},
        {"delimiter": "\n"},
        {"quote": ","},
        {"encoding": "ebcdic"},
        {"file_type": "xlsx"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        cut(b"", **options)


def test_options_outweigh_the_table() -> None:
    (found,) = cut(b"1;'a;b';-\n", header=False, delimiter=";", quote="'", null_text="-")
    assert found.layout is not None
    assert (found.layout.delimiter, found.layout.quote, found.layout.null_text) == (";", "'", "-")
    assert len(row_spans(found.body, ";", "'").starts) == 1


def test_invalid_utf8_and_nul_pass_through() -> None:
    assert cut(b"id,name\n1,\xff\x00\n")[0].body == b"1,\xff\x00\n"


def test_spans_and_lines_of_a_small_text() -> None:
    text = b'a,"b\nc"\r\n\r\nd,e\rf'
    spans = row_spans(text, ",", '"')
    assert [text[s:e] for s, e in zip(spans.starts, spans.ends, strict=True)] == [b'a,"b\nc"', b"d,e", b"f"]
    assert spans.lines.tolist() == [0, 3, 4]
    assert len(row_spans(b"", ",", '"').starts) == 0
