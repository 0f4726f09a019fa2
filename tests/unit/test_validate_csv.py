"""CSV chunks: what is accepted, what is rejected, why, and where it stood in the file."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millrace.arrow.types import stored_schema
from millrace.declare.table import parse_table
from millrace.lake.errors_table import REJECTED_SCHEMA, STORED_REJECTED_SCHEMA, stored_rejected
from millrace.model.chunk import ChunkHeader, Oversize, TextLayout
from millrace.model.table import Definition, define
from millrace.validate.judge import JudgedChunk, ignore, judge

UTC = dt.UTC


def table(*fields: dict[str, Any], key: list[str] | None = None, **more: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": list(fields)}
    return define("tenant", parse_table({"schema": schema, "primary_key": key or [], **more}), 1)


def column(avro: Any, name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **more}


def judged(definition: Definition, body: bytes, rows: int, *columns: str, null: str = "", **stamp: Any) -> JudgedChunk:
    layout = TextLayout(columns or tuple(c.name for c in definition.columns), ",", '"', null)
    values: dict[str, Any] = {"first_row": 1, "first_line": 1, "layout": layout, "oversize": None, "encoding": "csv"}
    values |= stamp
    header = ChunkHeader("imp_1", 3, 77, definition.fingerprint, rows=rows, plain_bytes=len(body), checksum=9, **values)
    result = judge(header, body, definition)
    rejected = 0 if result.rejected is None else result.rejected.num_rows
    assert result.accepted.schema == stored_schema(definition.columns)
    result.accepted.validate(full=True)
    if result.rejected is not None:
        assert result.rejected.schema == REJECTED_SCHEMA
        result.rejected.validate(full=True)
    if result.verdict.failure is None:
        assert result.accepted.num_rows + rejected == rows
    assert (result.verdict.accepted, result.verdict.rows) == (result.accepted.num_rows, rows)
    assert result.verdict.accepted + result.verdict.rejected + result.verdict.ignored == rows
    return result


def cell(avro: Any, text: str, null: str = "\\N") -> Any:
    """The value a single cell is stored as, or (rule, message) if it is rejected."""
    definition = table(column(avro), column("string", "other"))
    quoted = '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text
    result = judged(definition, f"{quoted},x\n".encode(), 1, null=null)
    if result.rejected is None:
        return result.accepted["c"][0].as_py()
    (reason,) = result.rejected["reasons"][0].as_py()
    assert reason["column"] == "c"
    assert reason["value"] is None or reason["value"] == text[:200]
    return reason["rule"], reason["message"]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
TIME_MS = {"type": "int", "logicalType": "time-millis"}
TIME_US = {"type": "long", "logicalType": "time-micros"}
STAMP = {"type": "long", "logicalType": "timestamp-micros"}
STAMP_MS = {"type": "long", "logicalType": "timestamp-millis"}
ENUM = {"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}
FIXED = {"type": "fixed", "name": "f", "size": 3}
UUID = {"type": "string", "logicalType": "uuid"}
RECORD = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
}
ARRAY = {"type": "array", "items": ["null", "long"]}
MAP = {"type": "map", "values": "double"}


@pytest.mark.parametrize(
    ("avro", "text", "value"),
    [
        ("int", "0", 0),
        ("int", "-2147483648", -(2**31)),
        ("int", "2147483647", 2**31 - 1),
        ("int", "+7", 7),
        ("int", "007", 7),
        ("int", " 7\t", 7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("double", "1.5e-3", 0.0015),
        ("double", "-.5", -0.5),
        ("double", "5.", 5.0),
        ("double", "1e-400", 0.0),
        ("double", "-Infinity", -math.inf),
        ("double", " inf", math.inf),
        ("float", "0.1", 0.10000000149011612),
        ("boolean", "TRUE", True),
        ("boolean", "f", False),
        ("boolean", "Yes", True),
        ("boolean", "0", False),
        ("string", " keeps its spaces ", " keeps its spaces "),
        ("string", 'a "quoted", cell\nof two lines', 'a "quoted", cell\nof two lines'),
        ("string", "žluťoučký 🐎", "žluťoučký 🐎"),
        ({"type": "string", "logicalType": "date"}, "not a date", "not a date"),
        ("bytes", "abc", b"abc"),
        (FIXED, "abc", b"abc"),
        (ENUM, "GREEN", "GREEN"),
        (UUID, "123e4567-E89B-12d3-a456-426614174000", "123e4567-E89B-12d3-a456-426614174000"),
        (DECIMAL, "999.99", Decimal("999.99")),
        (DECIMAL, "-1.5", Decimal("-1.50")),
        (DECIMAL, "1.500", Decimal("1.50")),
        (DECIMAL, " 12 ", Decimal("12.00")),
        (DATE, "2024-02-29", dt.date(2024, 2, 29)),
        (DATE, "0001-01-01", dt.date(1, 1, 1)),
        (DATE, "9999-12-31", dt.date(9999, 12, 31)),
        (DATE, "1969-12-31 ", dt.date(1969, 12, 31)),
        (TIME_MS, "23:59:59.999", 86_399_999),
        (TIME_MS, "00:00:00", 0),
        (TIME_MS, "00:00:00.100000", 100),
        (TIME_US, "00:00:01.000001", 1_000_001),
        (STAMP, "2024-01-02T03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (STAMP, "2024-01-02 03:04:05.678901Z", dt.datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)),
        (STAMP, "2024-01-02 03:04:05+02:00", dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
        (STAMP, "2024-01-02 03:04:05.5-0130", dt.datetime(2024, 1, 2, 4, 34, 5, 500000, UTC)),
        (STAMP, "2024-01-02 03:04:05-08", dt.datetime(2024, 1, 2, 11, 4, 5, tzinfo=UTC)),
        (STAMP, "2024-01-02 03:04:05.123456000", dt.datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)),
        (STAMP_MS, "1969-12-31T23:59:59.999Z", dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        (RECORD, '{"x": 1}', {"x": 1, "y": None}),
        (ARRAY, "[1, null, 3]", [1, None, 3]),
        (MAP, '{"a": 1, "b": 2.5}', [("a", 1.0), ("b", 2.5)]),
        (["null", "int"], "\\N", None),
        (["null", "string"], "\\N", None),
        (["null", "string"], "", ""),
        (["null", DATE], "\\N", None),
        (["null", RECORD], "\\N", None),
    ],
)
def test_a_good_cell_is_stored(avro: Any, text: str, value: Any) -> None:
    assert cell(avro, text) == value


def test_nan_is_a_double() -> None:
    assert math.isnan(cell("double", "NaN"))


@pytest.mark.parametrize(
    ("avro", "text", "rule", "message"),
    [
        ("int", "abc", "type", "'abc' is not an int"),
        ("int", "1.0", "type", "'1.0' is not an int"),
        ("int", "0x1f", "type", "'0x1f' is not an int"),
        ("int", "1_000", "type", "'1_000' is not an int"),
        ("int", "-", "type", "'-' is not an int"),
        ("int", "", "type", "'' is not an int"),
        ("int", "99999999999", "range", "99999999999 does not fit int (-2147483648 to 2147483647)"),
        ("int", "-2147483649", "range", "-2147483649 does not fit int (-2147483648 to 2147483647)"),
        (
            "long",
            "9223372036854775808",
            "range",
            "9223372036854775808 does not fit long (-9223372036854775808 to 9223372036854775807)",
        ),
        ("double", "1,5", "type", "'1,5' is not a double"),
        ("double", "nan(1)", "type", "'nan(1)' is not a double"),
        ("double", "1e400", "range", "1e400 does not fit double"),
        ("float", "1e39", "range", "1e39 does not fit float"),
        ("boolean", "maybe", "type", "'maybe' is not a boolean (true or false)"),
        (FIXED, "ab", "length", "is not 3 bytes long"),
        (ENUM, "green", "enum", "'green' is not one of: RED, GREEN"),
        (UUID, "123", "type", "'123' is not a uuid"),
        (DECIMAL, "x", "type", "'x' is not a decimal"),
        (DECIMAL, "1.005", "range", "1.005 does not fit decimal(5,2): 3 digits before and 2 after the point"),
        (DECIMAL, "1000", "range", "1000 does not fit decimal(5,2): 3 digits before and 2 after the point"),
        (DATE, "2023-02-29", "type", "'2023-02-29' is not a date (YYYY-MM-DD)"),
        (DATE, "2023-13-01", "type", "'2023-13-01' is not a date (YYYY-MM-DD)"),
        (DATE, "2023-1-1", "type", "'2023-1-1' is not a date (YYYY-MM-DD)"),
        (DATE, "0000-01-01", "type", "'0000-01-01' is not a date (YYYY-MM-DD)"),
        (DATE, "2023-01-01x", "type", "'2023-01-01x' is not a date (YYYY-MM-DD)"),
        (TIME_MS, "24:00:00", "type", "'24:00:00' is not a time (HH:MM:SS[.fff])"),
        (TIME_MS, "00:00:00.0001", "type", "'00:00:00.0001' is not a time (HH:MM:SS[.fff])"),
        (TIME_US, "00:00:60", "type", "'00:00:60' is not a time (HH:MM:SS[.ffffff])"),
        (STAMP, "2024-01-02", "type", "'2024-01-02' is not a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])"),
        (
            STAMP,
            "2024-01-02T03:04:05.",
            "type",
            "'2024-01-02T03:04:05.' is not a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
        ),
        (
            STAMP,
            "2024-01-02T03:04:05+2",
            "type",
            "'2024-01-02T03:04:05+2' is not a timestamp (YYYY-MM-DD HH:MM:SS[.ffffff][Z])",
        ),
        (RECORD, '{"y": "a"}', "required", "x is required and has no value"),
        (RECORD, '{"x": "a"}', "type", "x: 'a' is not an int"),
        (RECORD, "[]", "type", "[] is not a record"),
        (ARRAY, "[1, 2.5]", "type", "[1]: 2.5 is not a long"),
        ("int", "\\N", "required", "is required and has no value"),
        ("string", "\\N", "required", "is required and has no value"),
    ],
)
def test_a_bad_cell_is_a_reason(avro: Any, text: str, rule: str, message: str) -> None:
    assert cell(avro, text) == (rule, message)


def test_a_json_cell_that_is_no_json_is_a_reason() -> None:
    rule, message = cell(RECORD, "{")
    assert rule == "json"
    assert message.startswith("is not valid JSON: ")


def test_long_cells_are_shortened_in_reasons() -> None:
    definition = table(column("int"))
    result = judged(definition, b"x" * 1000 + b"\n", 1)
    assert result.rejected is not None
    (reason,) = result.rejected["reasons"][0].as_py()
    assert reason["value"] == "x" * 200
    assert reason["message"] == f"'{'x' * 80}…' is not an int"


def test_all_reasons_of_a_row_in_column_order() -> None:
    definition = table(column("int", "a"), column("string", "b"), column("double", "c"), column(DATE, "d"))
    result = judged(definition, b"1,ok,2.5,2024-01-01\nx,y,z,w\n2,\x00,3,2024-13-01\n", 3)
    assert result.accepted.to_pylist() == [
        {"a": 1, "b": "ok", "c": 2.5, "d": dt.date(2024, 1, 1), "_version": 77, "_import": "imp_1", "_row": 1}
    ]
    assert result.rejected is not None
    assert result.rejected["row"].to_pylist() == [2, 3]
    assert result.rejected["line"].to_pylist() == [2, 3]
    assert result.rejected["raw"].to_pylist() == [b"x,y,z,w", b"2,\x00,3,2024-13-01"]
    found = [[(reason["column"], reason["rule"]) for reason in row] for row in result.rejected["reasons"].to_pylist()]
    assert found == [[("a", "type"), ("c", "type"), ("d", "type")], [("b", "nul"), ("d", "type")]]


def test_wrong_cell_counts_keep_rows_and_lines_straight() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    body = b'"two\nlines",1\n\nalone\n"x\r\ny",2,3\nz,4\n\n"p\nq\nr",bad\n'
    result = judged(definition, body, 5, first_row=101, first_line=201)
    assert result.accepted.select(["a", "b", "_row"]).to_pylist() == [
        {"a": "two\nlines", "b": 1, "_row": 101},
        {"a": "z", "b": 4, "_row": 104},
    ]
    assert result.rejected is not None
    assert result.rejected.select(["row", "line", "raw"]).to_pylist() == [
        {"row": 102, "line": 204, "raw": b"alone"},
        {"row": 103, "line": 205, "raw": b'"x\r\ny",2,3'},
        {"row": 105, "line": 209, "raw": b'"p\nq\nr",bad'},
    ]
    messages = [reasons[0]["message"] for reasons in result.rejected["reasons"].to_pylist()]
    assert messages == [
        "has 1 cell, the file has 2 columns",
        "has 3 cells, the file has 2 columns",
        "'bad' is not an int",
    ]


def test_a_row_of_100_000_cells_is_one_rejected_row() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    result = judged(definition, b"a,1\n" + b"," * 99_999 + b"\nb,2\n", 3)
    assert result.accepted["_row"].to_pylist() == [1, 3]
    assert result.rejected is not None
    assert result.rejected["reasons"][0].as_py()[0]["message"] == "has 100000 cells, the file has 2 columns"


def test_invalid_utf8_rejects_its_row_alone() -> None:
    definition = table(column("string", "a"), column("int", "b"), column("bytes", "c"))
    body = b"\xff\xfe,1,x\n\xc3\xa9,2,\xff\n\xc3,\xa9,x\nplain,4,x\n"
    result = judged(definition, body, 4)
    assert result.accepted.select(["a", "c"]).to_pylist() == [{"a": "é", "c": b"\xff"}, {"a": "plain", "c": b"x"}]
    assert result.rejected is not None
    assert result.rejected["raw"].to_pylist() == [b"\xff\xfe,1,x", b"\xc3,\xa9,x"]
    rules = [[(reason["column"], reason["rule"]) for reason in row] for row in result.rejected["reasons"].to_pylist()]
    assert rules == [[("a", "utf8")], [("a", "utf8"), ("b", "utf8")]]


def test_a_miscounted_row_may_be_invalid_utf8() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    result = judged(definition, b'"\xff\n",1\n\xff\n\xc3\xa9,3\n\xfe,x,y\n', 4)
    assert result.accepted.select(["a", "_row"]).to_pylist() == [{"a": "é", "_row": 3}]
    assert result.rejected is not None
    assert result.rejected["raw"].to_pylist() == [b'"\xff\n",1', b"\xff", b"\xfe,x,y"]
    assert result.rejected["line"].to_pylist() == [1, 3, 5]
    assert [row[0]["rule"] for row in result.rejected["reasons"].to_pylist()] == ["utf8", "columns", "columns"]


def test_a_byte_order_mark_inside_the_file_is_text() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    assert judged(definition, "\ufeffx,1\n".encode(), 1).accepted["a"].to_pylist() == ["\ufeffx"]


def test_empty_cells_with_the_empty_null_text() -> None:
    definition = table(
        column("string", "s"), column(["null", "string"], "n"), column(["null", "int"], "i"), column("int", "r")
    )
    result = judged(definition, b',,,1\n"","",,2\nx,y,3,\n', 3)
    assert result.accepted.select(["s", "n", "i", "r"]).to_pylist() == [
        {"s": "", "n": None, "i": None, "r": 1},
        {"s": "", "n": "", "i": None, "r": 2},
    ]
    assert result.rejected is not None
    assert result.rejected["reasons"][0].as_py() == [
        {"column": "r", "rule": "required", "message": "is required and has no value", "value": None}
    ]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_an_empty_last_cell_is_null_whatever_ends_the_file(end: bytes) -> None:
    definition = table(column("string", "a"), column(["null", "string"], "b"))
    assert judged(definition, b'"x",' + end, 1).accepted["b"].to_pylist() == [None]


def test_a_key_needs_a_value_of_bounded_length() -> None:
    definition = table(column(["null", "string"], "k"), column("int", "v"), key=["k"])
    long = b"k" * 1025
    result = judged(definition, b',1\n"",2\nok,3\n' + long + b",4\n" + long[1:] + b",5\n", 5)
    assert result.accepted["v"].to_pylist() == [2, 3, 5]
    assert result.rejected is not None
    rules = [row[0]["rule"] for row in result.rejected["reasons"].to_pylist()]
    assert rules == ["primary_key", "key_length"]


def test_a_required_key_column_does_not_take_an_empty_cell_for_text() -> None:
    definition = table(column("string", "k"), column("int", "v"), key=["k"])
    result = judged(definition, b",1\nx,2\n", 2)
    assert result.accepted["v"].to_pylist() == [2]


def test_columns_by_name_with_absent_and_unknown_ones() -> None:
    definition = table(
        column("string", "a"), column("int", "b", default=7), column(["null", "long"], "c"),
        column(DATE, "d", default="2024-01-01"),
        unknown_fields="ignore",
    )  # fmt: skip
    result = judged(definition, b"1,x,2\n", 1, "odd", "a", "odd")
    assert result.accepted.select(["a", "b", "c", "d"]).to_pylist() == [
        {"a": "x", "b": 7, "c": None, "d": dt.date(2024, 1, 1)}
    ]


def test_an_absent_required_column_rejects_every_row() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    result = judged(definition, b"x\ny\n", 2, "a")
    assert result.rejected is not None
    assert [row[0]["rule"] for row in result.rejected["reasons"].to_pylist()] == ["required", "required"]


def test_other_delimiters_and_quotes() -> None:
    definition = table(column("string", "a"), column("int", "b"))
    layout = TextLayout(("a", "b"), ";", "'", "")
    result = judged(definition, b"'x;''y''';1\n\"q;2\n", 2, layout=layout)
    assert result.accepted["a"].to_pylist() == ["x;'y'", '"q']


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\n"])
def test_a_chunk_without_rows(body: bytes) -> None:
    result = judged(table(column("int")), body, 0)
    assert (result.accepted.num_rows, result.rejected) == (0, None)


def test_an_oversize_row_is_one_rejected_row() -> None:
    result = judged(
        table(column("int")),
        b"begin",
        1,
        encoding="oversize",
        first_row=5,
        first_line=8,
        oversize=Oversize("row_too_long", "is too long"),
    )
    assert result.rejected is not None
    assert result.rejected.to_pylist() == [
        {
            "row": 5,
            "line": 8,
            "raw": b"begin",
            "reasons": [{"column": None, "rule": "row_too_long", "message": "is too long", "value": None}],
        }
    ]
    assert result.verdict.failure is None


def test_a_row_count_that_differs_from_the_stamp_fails_the_chunk() -> None:
    result = judged(table(column("int")), b"1\n2\n", 3)
    assert result.verdict.failure == "The chunk holds 2 rows, its stamp says 3."
    assert (result.verdict.accepted, result.verdict.rejected) == (0, 3)
    assert result.rejected is not None
    assert result.rejected["raw"].to_pylist() == [b"1\n2\n"]
    assert result.rejected["reasons"][0].as_py()[0]["rule"] == "undecodable"


def test_an_unknown_encoding_fails_the_chunk() -> None:
    assert (
        judged(table(column("int")), b"1\n", 1, encoding="xml").verdict.failure
        == "The chunk's encoding 'xml' is unknown."
    )


def test_an_ignored_chunk_has_no_rows_and_counts_them() -> None:
    definition = table(column("int"))
    header = ChunkHeader("imp_1", 3, 77, definition.fingerprint, "csv", 1, 1, 10, 20, 9)
    result = ignore(header, definition)
    assert (result.accepted.num_rows, result.rejected) == (0, None)
    assert (result.verdict.ignored, result.verdict.accepted, result.verdict.rejected) == (10, 0, 0)


def test_rejected_rows_as_stored_name_their_chunk() -> None:
    definition = table(column("int"))
    header = ChunkHeader("imp_1", 3, 77, definition.fingerprint, "csv", 1, 1, 1, 2, 9, TextLayout(("c",), ",", '"', ""))
    rejected = judge(header, b"x\n", definition).rejected
    assert rejected is not None
    stored = stored_rejected(header, rejected)
    assert stored.schema == STORED_REJECTED_SCHEMA
    assert stored.select(["row", "_import", "chunk"]).to_pylist() == [{"row": 1, "_import": "imp_1", "chunk": 3}]


def test_many_bad_rows_keep_their_own_bytes() -> None:
    definition = table(column("int", "a"), column("string", "b"))
    body = b"".join(b"%d,r%d\n" % (i, i) if i % 3 else b"x%d,r%d\n" % (i, i) for i in range(10_000))
    result = judged(definition, body, 10_000)
    assert result.rejected is not None
    bad = range(0, 10_000, 3)
    assert result.rejected["raw"].to_pylist() == [b"x%d,r%d" % (i, i) for i in bad]
    assert result.rejected["row"].to_pylist() == [i + 1 for i in bad]
    assert [row[0]["value"] for row in result.rejected["reasons"].to_pylist()] == [f"x{i}" for i in bad]
    assert isinstance(result.accepted["b"], pa.ChunkedArray)
    assert result.accepted["b"].to_pylist() == [f"r{i}" for i in range(10_000) if i % 3]


@pytest.mark.parametrize(
    ("body", "closed"),
    [
        (b'a,1\nb,"2\n', False),
        (b'a,1\nb,"2\nc,3\n', False),
        (b'a,1\n"b,2\nc,3\n', False),
        (b'a,1\nb,"2', False),
        (b'a,1\nb,"x""\n', False),
        (b'a,1\nb,"x\n"\n', True),
        (b'a,1\nb,"x"', True),
        (b'a,1\nb"",x"\n', True),
        (b'a,1\n"b"" ",""""\n', True),
    ],
)
def test_a_quote_that_never_closes_rejects_the_last_row(body: bytes, closed: bool) -> None:
    definition = table(column("string", "a"), column("string", "b"))
    result = judged(definition, body, 2)
    assert result.accepted["_row"].to_pylist() == ([1, 2] if closed else [1])
    if result.rejected is not None:
        assert "unclosed_quote" in [reason["rule"] for reason in result.rejected["reasons"][0].as_py()]


def test_bytes_of_the_wrong_length_need_not_be_text() -> None:
    result = judged(table(column(FIXED), column("int", "i")), b"\xff\xfe,1\n\xff\xfe\xfd,2\n", 2)
    assert result.accepted["c"].to_pylist() == [b"\xff\xfe\xfd"]


def test_types_written_with_needless_wrapping() -> None:
    result = judged(table(column({"type": {"type": "int", "logicalType": "date"}})), b"2024-01-02\n", 1)
    assert result.accepted["c"].to_pylist() == [dt.date(2024, 1, 2)]
