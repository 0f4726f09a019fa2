"""The advice of a what-if: what to declare about a column, or which rows are bad; text only for what is text."""

from typing import Any

import pytest

from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions
from millrace.infer.trial import Bounds, try_file
from millrace.model.table import Definition, define

DATE = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}


def table(kind: Any, file_type: str = "csv", **attributes: Any) -> Definition:
    fields = [{"name": "id", "type": "int"}, {"name": "v", "type": kind, **attributes}]
    document = {"schema": {"type": "record", "name": "t", "fields": fields}, "file_type": file_type}
    return define("acme", parse_table({**document, "csv": {"delimiter": ";"}}), 1)


def advice(definition: Definition, cells: list[str]) -> dict[str, Any]:
    body = "id;v\n" + "".join(f"{number};{cell}\n" for number, cell in enumerate(cells))
    report = try_file([body.encode()], definition, UploadOptions(), Bounds()).report()
    (found,) = report["columns"]
    return dict(found)


def german(count: int) -> list[str]:
    return [f"{1 + n % 28:02d}.{1 + n % 12:02d}.2024" for n in range(count)]


def test_a_date_that_is_written_in_another_way_needs_a_format() -> None:
    cells = german(1236)
    cells[15], cells[91] = "soon", "31.02.2024"
    found = advice(table(DATE), cells)
    assert found["advice"] == "is declared date; declare `format: dd.MM.yyyy` for it: 1,234 of 1,236 cells fit"
    assert found["declare"] == {"format": "dd.MM.yyyy"}
    assert found["cells"] == {"seen": 1236, "fitting": 1234}


def test_what_is_advised_helps() -> None:
    cells = german(50)
    declared = advice(table(DATE), cells)["declare"]
    body = "id;v\n" + "".join(f"{number};{cell}\n" for number, cell in enumerate(cells))
    assert try_file([body.encode()], table(DATE, **declared), UploadOptions(), Bounds()).tally.failed == 0


@pytest.mark.parametrize(
    ("kind", "cells", "declare"),
    [
        (MOMENT, ["31/01/2024 10:15", "01/02/2024 11:30"], {"format": "dd/MM/yyyy HH:mm"}),
        ("double", ["1.234,50", "2,25"], {"decimal_separator": ",", "thousands_separator": "."}),
        ("int", ["1.234", "1.234.567"], {"thousands_separator": "."}),
        ("boolean", ["ja", "nein"], {"true_texts": ["ja"], "false_texts": ["nein"]}),
        (["null", "int"], ["5", "N/A"], {"null_texts": ["N/A"]}),
        ("int", ["2,5", "3,25"], {"type": "double", "decimal_separator": ","}),
        ("int", ["31.01.2024", "01.02.2024"], {"type": DATE, "format": "dd.MM.yyyy"}),
    ],
)
def test_how_cells_are_written_is_advised_and_never_text(kind: Any, cells: list[str], declare: dict[str, Any]) -> None:
    found = advice(table(kind), cells * 20)
    assert found["declare"] == declare
    assert "string" not in found["advice"]


def test_a_handful_of_bad_rows_is_named() -> None:
    cells = [str(n) for n in range(1236)]
    cells[15], cells[91] = "many", "few"
    found = advice(table("int"), cells)
    assert found["advice"] == "is declared int, and 1,234 of 1,236 cells fit: 2 rows are bad (lines 17, 93)"
    assert (found["declare"], found["bad_lines"], [fit["type"] for fit in found["fits"]]) == ({}, [17, 93], ["int"])


def test_a_declared_format_with_a_few_bad_cells_stays() -> None:
    cells = german(100)
    cells[7] = "never"
    found = advice(table(DATE, format="dd.MM.yyyy"), cells)
    assert found["advice"] == "is declared date, and 99 of 100 cells fit: 1 row is bad (line 9)"


def test_a_wrong_declared_format_is_replaced() -> None:
    found = advice(table(DATE, format="MM/dd/yyyy"), german(100))
    assert found["declare"] == {"format": "dd.MM.yyyy"}


def test_text_is_advised_for_text() -> None:
    found = advice(table("int"), ["apple", "pear", "7"] * 20)
    assert found["advice"] == "is declared int; string would take every value"
    assert found["declare"] == {}


def test_json_texts_that_are_dates_for_people_need_a_format() -> None:
    body = "".join(f'{{"id": {number}, "v": "{cell}"}}\n' for number, cell in enumerate(german(30)))
    report = try_file([body.encode()], table(DATE, "jsonl"), UploadOptions(), Bounds()).report()
    assert report["columns"][0]["declare"] == {"format": "dd.MM.yyyy"}


def test_repeated_headers_are_counted_and_no_reason_for_advice() -> None:
    body = b"id;v\n1;2\nid;v\n3;4\n"
    report = try_file([body], table("int"), UploadOptions(), Bounds()).report()
    assert (report["repeated_headers"], report["rows"], report["columns"]) == (
        1, {"read": 2, "passed": 2, "failed": 0}, [],
    )  # fmt: skip
