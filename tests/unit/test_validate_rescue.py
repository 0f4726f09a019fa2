"""Unknown fields that are kept, columns under their former names, and defaults for what is not there, in every format."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millrace.arrow.types import stored_schema
from millrace.model.chunk import TextLayout
from millrace.model.table import Definition
from millrace.validate.judge import JudgedChunk
from tests.support.chunks import arrow, avro, column, csv, jsonl, judged, reasons, table


def rescuing(*fields: dict[str, Any], key: tuple[str, ...] = ("id",)) -> Definition:
    return table(column("id", "int"), *fields, key=key, unknown_fields="rescue")


def rescued(result: JudgedChunk) -> list[str | None]:
    assert result.rejected is None
    texts: list[str | None] = result.accepted["_rescued"].to_pylist()
    return texts


def test_unknown_csv_cells_become_an_object_of_strings() -> None:
    text = '1,x,2\n2,,\n3,"a ""q"", \\ \t é",\n4,"",9\n'
    assert rescued(csv(rescuing(), text, "id", "z", "a b")) == [
        '{"a b":"2","z":"x"}',
        None,
        '{"z":"a \\"q\\", \\\\ \\t é"}',
        '{"a b":"9","z":""}',
    ]


def test_a_file_without_unknown_columns_has_nothing_to_rescue() -> None:
    definition = rescuing()
    result = csv(definition, "1\n2\n", "id")
    assert rescued(result) == [None, None]
    assert result.accepted.schema == stored_schema(definition.columns)


def test_rescued_text_is_json_whatever_the_cell_holds() -> None:
    cell = "".join(map(chr, range(128)))
    body = f'1,"{cell.replace(chr(34), chr(34) * 2)}"\n'.encode()
    (text,) = rescued(judged(rescuing(), "csv", body, 1, layout=TextLayout(("id", "x"), ",", '"', "")))
    assert text is not None
    assert json.loads(text) == {"x": cell}


def test_rescued_cells_must_be_text() -> None:
    body = b"1,ok\n2,\xff\n3,\x00\n"
    result = judged(rescuing(), "csv", body, 3, layout=TextLayout(("id", "x"), ",", '"', ""))
    assert reasons(result) == [[("x", "utf8")]]
    assert result.accepted["_rescued"].to_pylist() == ['{"x":"ok"}', '{"x":"\\u0000"}']


def test_unknown_json_fields_are_kept_as_they_are() -> None:
    result = jsonl(
        rescuing(),
        {"id": 1, "z": 1.5, "a": {"y": [1, None], "b": "é"}},
        {"id": 2},
        {"id": 3, "gone": None},
        '{"id": 4, "big": 123456789012345678901234567890}',
    )
    texts = rescued(result)
    assert texts[:3] == ['{"a":{"b":"é","y":[1,null]},"z":1.5}', None, None]
    assert json.loads(texts[3] or "")["big"] == pytest.approx(123456789012345678901234567890)


def test_numbers_beside_a_decimal_column_are_kept_exactly() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    result = jsonl(rescuing(column("d", money)), '{"id": 1, "d": 1.10, "x": 0.1000, "n": 123456789012345678901}')
    assert result.accepted["d"].to_pylist() == [Decimal("1.10")]
    assert rescued(result) == ['{"n":123456789012345678901,"x":0.1000}']


def test_what_is_nested_too_deep_is_no_reason_to_fail_the_chunk() -> None:
    deep = "[" * 900 + "]" * 900
    result = jsonl(rescuing(), '{"id": 1, "x": ' + deep + "}", {"id": 2})
    assert reasons(result) == [[(None, "unknown_field")]]
    assert result.accepted["id"].to_pylist() == [2]


def test_unknown_arrow_columns_of_any_type_are_kept() -> None:
    rows = pa.table(
        {
            "id": [1, 2],
            "flag": [True, None],
            "whole": [7, None],
            "part": [0.5, float("nan")],
            "exact": pa.array([Decimal("1.20"), None]),
            "day": [dt.date(2024, 1, 2), None],
            "text": pa.array(['q"', None]).dictionary_encode(),
            "deep": [{"b": 1, "a": [dt.date(2024, 1, 2)]}, None],
            "none": pa.nulls(2),
        }
    )
    texts = rescued(arrow(rescuing(), rows))
    assert texts == [
        '{"day":"2024-01-02","deep":{"a":["2024-01-02"],"b":1},"exact":1.20,"flag":true,"part":0.5,"text":"q\\"","whole":7}',
        '{"part":"nan"}',
    ]


def test_unknown_avro_fields_are_kept_even_of_types_no_column_has() -> None:
    fields = [column("id", "int"), column("u", ["null", "int", "string"]), column("b", "bytes")]
    rows = {"id": 1, "u": "x", "b": b"raw"}, {"id": 2, "u": 5, "b": b""}
    assert rescued(avro(rescuing(), fields, *rows)) == ['{"b":"raw","u":"x"}', '{"b":"","u":5}']


def test_a_rejected_avro_row_is_shown_with_its_unknown_fields() -> None:
    result = avro(rescuing(), [column("id", ["null", "int"]), column("u", "string")], {"id": None, "u": "x"})
    assert result.rejected is not None
    assert json.loads(result.rejected["raw"][0].as_py()) == {"id": None, "u": "x"}


def test_a_file_cannot_write_the_rescue_column_itself() -> None:
    assert rescued(jsonl(rescuing(), {"id": 1, "_rescued": "mine"})) == ['{"_rescued":"mine"}']
    assert rescued(csv(rescuing(), "1,mine\n", "id", "_rescued")) == ['{"_rescued":"mine"}']


def test_deleted_rows_keep_nothing_of_it() -> None:
    result = jsonl(rescuing(), {"id": 1, "x": 2, "_deleted": True}, {"id": 2, "x": 2})
    assert result.accepted["_rescued"].to_pylist() == [None, '{"x":2}']


def renamed(**more: Any) -> Definition:
    inner = {"type": "record", "name": "r", "fields": [column("now", "int", aliases=["then"])]}
    fields = [column("id", "int", aliases=["old_id", "older_id"]), column("r", ["null", inner])]
    return table(*fields, key=("id",), **more)


def test_columns_are_found_under_their_former_names() -> None:
    expected = [{"id": 1, "r": {"now": 2}}]
    record = {"type": "record", "name": "r", "fields": [column("then", "int")]}
    rows = pa.table({"older_id": [1], "r": pa.array([{"then": 2}])})
    results = [
        csv(renamed(), '1,"{""then"": 2}"\n', "older_id", "r"),
        jsonl(renamed(), {"old_id": 1, "r": {"then": 2}}),
        arrow(renamed(), rows),
        avro(renamed(), [column("old_id", "int"), column("r", record)], {"old_id": 1, "r": {"then": 2}}),
    ]
    for result in results:
        assert result.rejected is None
        assert result.accepted.select(["id", "r"]).to_pylist() == expected


def test_each_json_row_may_use_another_name() -> None:
    result = jsonl(renamed(), {"old_id": 1}, {"id": 2}, {"older_id": 3}, {"id": 4, "old_id": 5})
    assert result.accepted["id"].to_pylist() == [1, 2, 3]
    assert reasons(result) == [[("old_id", "unknown_field")]]


def test_a_present_name_is_stronger_than_a_former_one() -> None:
    definition = renamed(unknown_fields="rescue")
    result = csv(definition, "1,2\n", "old_id", "id")
    assert result.accepted["id"].to_pylist() == [2]
    assert result.accepted["_rescued"].to_pylist() == ['{"old_id":"1"}']


def test_a_name_that_is_taken_again_is_no_former_name() -> None:
    definition = table(column("b", "int", aliases=["a"], default=0), column("a", "int"))
    assert jsonl(definition, {"a": 5}).accepted.select(["b", "a"]).to_pylist() == [{"b": 0, "a": 5}]
    assert csv(definition, "5\n", "a").accepted.select(["b", "a"]).to_pylist() == [{"b": 0, "a": 5}]


UUID = "01234567-89ab-cdef-0123-456789abcdef"
LOGICAL: list[tuple[Any, Any, Any]] = [
    ("int", 5, 5),
    ("double", 1, 1.0),
    ("string", "é", "é"),
    ("bytes", "é", "é".encode()),
    ("boolean", False, False),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "fixed", "name": "f", "size": 2}, "ab", b"ab"),
    ({"type": "string", "logicalType": "uuid"}, UUID, UUID),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, "1.5", Decimal("1.50")),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, 2, Decimal("2.00")),
    ({"type": "int", "logicalType": "date"}, "2024-02-29", dt.date(2024, 2, 29)),
    ({"type": "int", "logicalType": "date"}, 1, dt.date(1970, 1, 2)),
    ({"type": "int", "logicalType": "time-millis"}, "01:02:03.004", 3723004),
    ({"type": "long", "logicalType": "time-micros"}, "01:02:03.5", 3723500000),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1, dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        "2024-01-02 03:04:05.678+01:00",
        dt.datetime(2024, 1, 2, 2, 4, 5, 678000, dt.UTC),
    ),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "int"}, {"k": 1}, [("k", 1)]),
    (
        {"type": "record", "name": "r", "fields": [column("a", "int"), column("b", "int", default=9)]},
        {"a": 1},
        {"a": 1, "b": 9},
    ),
]


@pytest.mark.parametrize(("avro_type", "default", "stored"), LOGICAL, ids=[str(case[:2])[:60] for case in LOGICAL])
def test_an_absent_column_has_its_default_in_every_format(avro_type: Any, default: Any, stored: Any) -> None:
    definition = table(column("id", "int"), column("c", avro_type, default=default), key=("id",))
    results = [
        csv(definition, "1\n", "id"),
        jsonl(definition, {"id": 1}),
        arrow(definition, pa.table({"id": [1]})),
        avro(definition, [column("id", "int")], {"id": 1}),
    ]
    for result in results:
        assert result.rejected is None
        assert result.accepted["c"].to_pylist() == [stored]


@pytest.mark.parametrize(("avro_type", "default", "stored"), LOGICAL, ids=[str(case[:2])[:60] for case in LOGICAL])
def test_an_absent_inner_field_has_its_default_in_every_format(avro_type: Any, default: Any, stored: Any) -> None:
    inner = {"type": "record", "name": "outer", "fields": [column("x", "int"), column("c", avro_type, default=default)]}
    definition = table(column("id", "int"), column("o", {"type": "array", "items": inner}), key=("id",))
    old = {"type": "record", "name": "old", "fields": [column("x", "int")]}
    written = [column("id", "int"), column("o", {"type": "array", "items": old})]
    results = [
        csv(definition, '1,"[{""x"": 1}]"\n'),
        jsonl(definition, {"id": 1, "o": [{"x": 1}]}),
        arrow(definition, pa.table({"id": [1], "o": pa.array([[{"x": 1}]])})),
        avro(definition, written, {"id": 1, "o": [{"x": 1}]}),
    ]
    for result in results:
        assert result.rejected is None
        assert result.accepted["o"].to_pylist() == [[{"x": 1, "c": stored}]]
