"""Lines before the header: skipped up to the declared number, and never the header itself."""

from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.formats.cut import CutPiece, PieceLimits, UploadOptions, open_cutter
from millrace.model.errors import Invalid
from millrace.model.table import Definition, TableDeclaration, define

FIELDS = [{"name": "id", "type": "int"}, {"name": "v", "type": "int"}]


def declared(**csv: Any) -> TableDeclaration:
    return parse_table({"schema": {"type": "record", "name": "t", "fields": FIELDS}, "csv": csv})


def table(skip: int) -> Definition:
    return define("acme", declared(skip_lines=skip), 1)


def cut(text: bytes, skip: int, step: int = 1 << 20) -> list[CutPiece]:
    cutter = open_cutter(table(skip), UploadOptions(), limits=PieceLimits())
    pieces = [piece for at in range(0, len(text), step) for piece in cutter.feed(text[at : at + step])]
    return [*pieces, *cutter.finish()]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_lines_before_the_header_are_skipped_and_rows_keep_their_lines(step: int) -> None:
    (piece,) = cut(b"Report, of today\n\nmade 1,2,3\r\n\r\nid,v\n1,2\n3,4\n", 2, step)
    assert (piece.body, piece.rows, piece.first_row, piece.first_line) == (b"1,2\n3,4\n", 2, 1, 6)
    assert piece.layout is not None
    assert piece.layout.columns == ("id", "v")


def test_a_file_that_begins_with_its_header_loses_nothing() -> None:
    """Such as a file of corrected rows."""
    (piece,) = cut(b"id,v\n1,2\n3,4\n", 2)
    assert piece.rows == 2


def test_more_lines_than_declared_are_refused() -> None:
    with pytest.raises(Invalid, match="header in line 2 lacks"):
        cut(b"one\ntwo\nid,v\n1,2\n", 1)


@pytest.mark.parametrize("value", [-1, 1001, "many"])
def test_a_strange_number_of_lines_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"csv\.skip_lines"):
        declared(skip_lines=value)


def test_without_a_header_no_line_is_skipped() -> None:
    with pytest.raises(Invalid, match=r"csv\.skip_lines is 2"):
        declared(skip_lines=2, header=False)


def test_a_definition_without_it_keeps_its_fingerprint() -> None:
    assert "skip_lines" not in declared().to_dict()["csv"]
    again = TableDeclaration.from_dict(declared(skip_lines=3).to_dict())
    assert again.csv.skip_lines == 3
