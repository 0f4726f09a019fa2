"""JSON Lines uploads."""

from typing import Any

import pytest

from millrace.formats.cut import CutPiece, UploadOptions, open_cutter
from millrace.formats.line_cut import line_spans
from millrace.model.errors import Invalid
from millrace.model.table import TableDeclaration, define

MIB = 1 << 20


def cut(text: bytes, **options: Any) -> list[CutPiece]:
    schema = {"type": "record", "name": "x", "fields": [{"name": "a", "type": "int"}]}
    cutter = open_cutter(define("t", TableDeclaration("x", schema), 1), UploadOptions(file_type="jsonl", **options))
    return [*cutter.feed(text), *cutter.finish()]


def test_blank_lines_are_no_rows_and_lines_are_counted() -> None:
    (found,) = cut(b'\n{"a": 1}\r\n \t\n\n  {"a": 2}')
    assert (found.rows, found.first_row, found.first_line, found.encoding) == (2, 1, 1, "jsonl")
    spans = line_spans(found.body)
    assert [found.body[s:e] for s, e in zip(spans.starts, spans.ends, strict=True)] == [b'{"a": 1}', b'  {"a": 2}']
    assert spans.lines.tolist() == [1, 4]


def test_a_line_of_nul_is_a_row() -> None:
    assert cut(b"\0\n")[0].rows == 1


@pytest.mark.parametrize("text", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_upload_without_rows_is_one_piece_with_none(text: bytes) -> None:
    (found,) = cut(text)
    assert (found.rows, found.body) == (0, b"")


@pytest.mark.parametrize("text", [b'[{"a": 1}]', b'\n  [\n{"a": 1}\n]', b'\xef\xbb\xbf[{"a": 1}]', b'{\n  "a": 1\n}\n'])
def test_json_that_is_not_lines_is_refused_with_the_remedy(text: bytes) -> None:
    with pytest.raises(Invalid, match="one object per line"):
        cut(text)


def test_utf16_is_transcoded() -> None:
    assert cut('{"a": 1}\n'.encode("utf-16"))[0].body == b'{"a": 1}\n'


def test_a_row_over_the_limit_is_one_short_piece() -> None:
    found = cut(b'{"a": 1}\n' + b"[" * (5 * MIB) + b'\n{"a": 2}\n')
    assert [(piece.rows, piece.first_row, piece.first_line, piece.encoding) for piece in found] == [
        (1, 1, 1, "jsonl"),
        (1, 2, 2, "oversize"),
        (1, 3, 3, "jsonl"),
    ]
    assert found[1].oversize is not None
    assert found[1].oversize.rule == "row_too_long"


def test_pieces_end_at_the_last_row_at_or_before_the_target() -> None:
    found = cut(b'{"a": 12}\n' * MIB)
    assert {len(piece.body) for piece in found[:-1]} == {MIB - MIB % 10}
    assert sum(piece.rows for piece in found) == MIB
