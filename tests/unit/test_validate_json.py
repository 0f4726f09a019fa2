"""JSON Lines chunks: types, logical types, missing and unknown fields, and lines that are no objects."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from millrace.arrow.types import stored_schema
from millrace.declare.table import parse_table
from millrace.model.chunk import ChunkHeader
from millrace.model.table import Definition, define
from millrace.validate.judge import JudgedChunk, judge

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
TIME_MS = {"type": "int", "logicalType": "time-millis"}
STAMP = {"type": "long", "logicalType": "timestamp-micros"}
STAMP_MS = {"type": "long", "logicalType": "timestamp-millis"}
ENUM = {"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}
RECORD = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "x", "type": "int"}, {"name": "d", "type": ["null", DATE]}],
}


def table(*fields: dict[str, Any], key: list[str] | None = None, **more: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": list(fields)}
    return define("tenant", parse_table({"schema": schema, "primary_key": key or [], "file_type": "jsonl", **more}), 1)


def judged(definition: Definition, body: bytes, rows: int) -> JudgedChunk:
    header = ChunkHeader("imp_1", 0, 77, definition.fingerprint, "jsonl", 1, 1, rows, len(body), 9)
    result = judge(header, body, definition)
    assert result.accepted.schema == stored_schema(definition.columns)
    result.accepted.validate(full=True)
    assert result.accepted.num_rows + (0 if result.rejected is None else result.rejected.num_rows) == rows
    return result


def reasons(result: JudgedChunk) -> list[list[tuple[str | None, str, str]]]:
    assert result.rejected is not None
    return [
        [(one["column"], one["rule"], one["message"]) for one in row] for row in result.rejected["reasons"].to_pylist()
    ]


def cell(avro: Any, json_text: str) -> Any:
    definition = table({"name": "c", "type": avro}, {"name": "i", "type": "int"})
    result = judged(definition, f'{{"c": {json_text}, "i": 1}}\n'.encode(), 1)
    if result.rejected is None:
        return result.accepted["c"][0].as_py()
    ((_, rule, message),) = reasons(result)[0]
    return rule, message


@pytest.mark.parametrize(
    ("avro", "text", "value"),
    [
        ("int", "2147483647", 2**31 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("double", "1", 1.0),
        ("double", "12345678901234567890", 12345678901234567890.0),
        ("float", "0.5", 0.5),
        ("boolean", "true", True),
        ("string", '"é\\n"', "é\n"),
        ("bytes", '"a\\u0000"', b"a\0"),
        (ENUM, '"RED"', "RED"),
        (DECIMAL, '"1.5"', Decimal("1.50")),
        (DECIMAL, "1.5", Decimal("1.50")),
        (DECIMAL, "7", Decimal("7.00")),
        (DECIMAL, "123456789012345678.91", Decimal("123456789012345678.91")),
        (DATE, '"2024-01-02"', dt.date(2024, 1, 2)),
        (DATE, "19724", dt.date(2024, 1, 2)),
        (TIME_MS, "1000", 1000),
        (STAMP, "1000000", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        (STAMP_MS, "1000", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        (STAMP_MS, '"1970-01-01T00:00:01Z"', dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        (RECORD, '{"x": 1, "d": "2024-01-02", "more": 1}', {"x": 1, "d": dt.date(2024, 1, 2)}),
        (RECORD, '{"x": 1, "d": 19724}', {"x": 1, "d": dt.date(2024, 1, 2)}),
        (["null", "int"], "null", None),
    ],
)
def test_a_good_value_is_stored(avro: Any, text: str, value: Any) -> None:
    assert cell(avro, text) == value


@pytest.mark.parametrize(
    ("avro", "text", "rule", "message"),
    [
        ("int", '"1"', "type", "'1' is not an int"),
        ("int", "1.0", "type", "1.0 is not an int"),
        ("int", "true", "type", "true is not an int"),
        ("int", "2147483648", "range", "2147483648 does not fit int (-2147483648 to 2147483647)"),
        (
            "long",
            "9223372036854775808",
            "range",
            "9223372036854775808 does not fit long (-9223372036854775808 to 9223372036854775807)",
        ),
        ("double", '"1.5"', "type", "'1.5' is not a double"),
        ("float", "1e39", "range", "1e+39 does not fit float"),
        ("boolean", "1", "type", "1 is not a boolean (true or false)"),
        ("string", "5", "type", "5 is not a string"),
        ("string", '"a\\u0000"', "nul", "contains a NUL character"),
        (ENUM, '"BLUE"', "enum", "'BLUE' is not one of: RED, GREEN"),
        (DECIMAL, "1.505", "range", "1.505 does not fit decimal(20,2): 18 digits before and 2 after the point"),
        (DECIMAL, "0.1000000000000000055", "range",
         "0.1000000000000000055 does not fit decimal(20,2): 18 digits before and 2 after the point"),
        (DATE, "99999999", "range", "99999999 is not a date (YYYY-MM-DD): it must be -719162 to 2932896"),
        (TIME_MS, "-1", "range", "-1 is not a time (HH:MM:SS[.fff]): it must be 0 to 86399999"),
        (DATE, "true", "type", "true is not a date (YYYY-MM-DD)"),
        (RECORD, '{"x": 1, "d": "soon"}', "type", "d: 'soon' is not a date (YYYY-MM-DD)"),
        ("int", "null", "required", "is required and has no value"),
    ],
)  # fmt: skip
def test_a_bad_value_is_a_reason(avro: Any, text: str, rule: str, message: str) -> None:
    assert cell(avro, text) == (rule, message)


def test_lines_that_are_no_objects_are_rejected_alone() -> None:
    definition = table({"name": "a", "type": "int"})
    lines = [b'{"a":1}', b"null", b"[1]", b'{"a":', b'{"a":1} {"a":2}', b"\xff", b'{"a":2}', b"5", b"NaN"]
    result = judged(definition, b"\n\n".join(lines) + b"\n", len(lines))
    assert result.accepted.select(["a", "_row"]).to_pylist() == [{"a": 1, "_row": 1}, {"a": 2, "_row": 7}]
    assert result.rejected is not None
    assert result.rejected["raw"].to_pylist() == [lines[place] for place in (1, 2, 3, 4, 5, 7, 8)]
    assert result.rejected["line"].to_pylist() == [3, 5, 7, 9, 11, 15, 17]
    assert {rule for row in reasons(result) for _, rule, _ in row} == {"json"}


def test_missing_fields_take_the_default_else_null_else_a_reason() -> None:
    definition = table(
        {"name": "a", "type": "int"},
        {"name": "b", "type": "int", "default": 5},
        {"name": "c", "type": ["null", "string"]},
        key=["a"],
    )
    result = judged(definition, b'{"a":1}\n{"b":2}\n{"a":3,"b":null}\n', 3)
    assert result.accepted.select(["a", "b", "c"]).to_pylist() == [{"a": 1, "b": 5, "c": None}]
    assert [[(column, rule) for column, rule, _ in row] for row in reasons(result)] == [
        [("a", "primary_key")],
        [("b", "required")],
    ]


@pytest.mark.parametrize("policy", ["reject", "ignore"])
def test_unknown_fields_follow_the_table(policy: str) -> None:
    definition = table({"name": "a", "type": "int"}, unknown_fields=policy)
    result = judged(definition, b'{"a":1,"z":2}\n{"a":2}\n', 2)
    if policy == "ignore":
        assert result.accepted["a"].to_pylist() == [1, 2]
    else:
        assert result.accepted["a"].to_pylist() == [2]
        assert reasons(result) == [[("z", "unknown_field", "is no column of the table")]]


def test_all_reasons_of_a_row() -> None:
    definition = table({"name": "a", "type": "int"}, {"name": "b", "type": "string"}, {"name": "c", "type": DATE})
    result = judged(definition, b'{"a":"x","b":1,"c":"y","q":0}\n', 1)
    assert [[column for column, _, _ in row] for row in reasons(result)] == [["q", "a", "b", "c"]]


def test_of_a_key_written_twice_the_last_counts() -> None:
    assert judged(table({"name": "a", "type": "int"}), b'{"a":"x","a":2}\n', 1).accepted["a"].to_pylist() == [2]


def test_an_empty_chunk() -> None:
    assert judged(table({"name": "a", "type": "int"}), b"", 0).verdict.rows == 0


def test_values_nested_too_deep_or_too_long_are_reasons() -> None:
    definition = table(
        {"name": "a", "type": DECIMAL}, {"name": "r", "type": ["null", {"type": "array", "items": "int"}]}
    )
    deep = b"[" * 600 + b"]" * 600
    lines = [
        b'{"a":1,"q":%s}' % deep,
        b'{"a":1,"r":%s}' % deep,
        b'{"a":%s}' % (b"9" * 5000),
        b'{"a":1,"r":[%s]}' % (b"9" * 25),
        b'{"a":1}',
    ]
    result = judged(definition, b"\n".join(lines) + b"\n", 5)
    assert result.accepted["_row"].to_pylist() == [5]
    assert [row[0][1] for row in reasons(result)] == ["unknown_field", "type", "json", "range"]
