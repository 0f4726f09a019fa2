"""Values as people write them: dates, numbers, booleans and nulls in the way a column declares, cell by cell."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions, open_cutter
from millrace.model.chunk import TextLayout
from millrace.model.table import define
from tests.support.chunks import arrow, avro, column, csv, jsonl, judged, reasons, table

DATE = {"type": "int", "logicalType": "date"}
TIME_MS = {"type": "int", "logicalType": "time-millis"}
TIME_US = {"type": "long", "logicalType": "time-micros"}
STAMP = {"type": "long", "logicalType": "timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ENUM = {"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}
UTC = dt.UTC


def cell(avro_type: Any, text: str, **words: Any) -> Any:
    """The value that a cell is stored as, or its only reason."""
    definition = table(column("c", avro_type, **words), column("other", "string"))
    quoted = '"' + text.replace('"', '""') + '"'
    result = csv(definition, f"{quoted},x\n", null="\\N")
    if result.rejected is None:
        return result.accepted["c"][0].as_py()
    (reason,) = result.rejected["reasons"][0].as_py()
    assert reason["column"] == "c"
    return reason["message"]


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("avro_type", "format_", "text", "value"),
    [
        (DATE, "dd.MM.yyyy", "31.01.2024", dt.date(2024, 1, 31)),
        (DATE, "dd.MM.yyyy", " 31.01.2024\t", dt.date(2024, 1, 31)),
        (DATE, "d.M.yyyy", "1.2.2024", dt.date(2024, 2, 1)),
        (DATE, "d.M.yyyy", "11.12.2024", dt.date(2024, 12, 11)),
        (DATE, "%d.%m.%Y", "1.12.2024", dt.date(2024, 12, 1)),
        (DATE, "%m/%d/%y", "02/29/24", dt.date(2024, 2, 29)),
        (DATE, "%y%m%d", "680101", dt.date(2068, 1, 1)),
        (DATE, "%y%m%d", "690101", dt.date(1969, 1, 1)),
        (DATE, "yyyyMMdd", "20240229", dt.date(2024, 2, 29)),
        (DATE, "dd MMM yyyy", "05 Feb 2024", dt.date(2024, 2, 5)),
        (DATE, "dd-MMM-yy", "05-FEB-24", dt.date(2024, 2, 5)),
        (DATE, "MMMM d, yyyy", "September 5, 2024", dt.date(2024, 9, 5)),
        (DATE, "MMMM d, yyyy", "may 15, 2024", dt.date(2024, 5, 15)),
        (DATE, "EEEE, d MMMM yyyy", "Wednesday, 5 June 2024", dt.date(2024, 6, 5)),
        (DATE, "%b %e %Y", "Nov  6 2024", dt.date(2024, 11, 6)),
        (DATE, "yyyy年MM月dd日", "2024年01月31日", dt.date(2024, 1, 31)),
        (DATE, "dd.MM.yyyy HH:mm", "31.01.2024 00:00", dt.date(2024, 1, 31)),
        (TIME_MS, "HH:mm", "23:59", (23 * 60 + 59) * 60_000),
        (TIME_MS, "h:mm a", "12:05 am", 5 * 60_000),
        (TIME_MS, "h:mm a", "12:05 PM", (12 * 60 + 5) * 60_000),
        (TIME_US, "HH.mm.ss,SSSSSS", "01.02.03,000004", 3_723_000_004),
        (TIME_US, "%H:%M:%S.%f", "01:02:03.5", 3_723_500_000),
        (STAMP, "dd.MM.yyyy HH:mm", "31.01.2024 13:45", utc(2024, 1, 31, 13, 45)),
        (STAMP, "dd.MM.yyyy", "31.01.2024", utc(2024, 1, 31)),
        (STAMP, "%d/%m/%Y %H:%M:%S", "01/08/2019 11:38:33", utc(2019, 8, 1, 11, 38, 33)),
        (STAMP, "%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700", utc(2000, 10, 10, 20, 55, 36)),
        (STAMP, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2024-01-31T13:45:00.250+02:00", utc(2024, 1, 31, 11, 45, 0, 250_000)),
        (STAMP, "yyyy-MM-dd'T'HH:mm:ssXXX", "2024-01-31T13:45:00Z", utc(2024, 1, 31, 13, 45)),
        (STAMP, "EEE MMM d HH:mm:ss Z yyyy", "Wed Jan 31 13:45:00 +0100 2024", utc(2024, 1, 31, 12, 45)),
        (STAMP, ["dd.MM.yyyy HH:mm", "dd.MM.yyyy", "%Y-%m-%d"], "31.01.2024", utc(2024, 1, 31)),
        (STAMP, ["dd.MM.yyyy HH:mm", "dd.MM.yyyy", "%Y-%m-%d"], "2024-01-31", utc(2024, 1, 31)),
    ],
)
def test_a_moment_is_read_by_its_format(avro_type: Any, format_: Any, text: str, value: Any) -> None:
    assert cell(avro_type, text, format=format_) == value


@pytest.mark.parametrize(
    ("avro_type", "format_", "text", "said"),
    [
        (DATE, "dd.MM.yyyy", "2024-01-31", "'2024-01-31' is not a date (dd.MM.yyyy)"),
        (DATE, "dd.MM.yyyy", "30.02.2024", "'30.02.2024' is not a date (dd.MM.yyyy)"),
        (DATE, "dd.MM.yyyy", "1.02.2024", "'1.02.2024' is not a date (dd.MM.yyyy)"),
        (DATE, "dd.MM.yyyy", "31.01.20245", "'31.01.20245' is not a date (dd.MM.yyyy)"),
        (DATE, "dd.MM.yyyy", "", "'' is not a date (dd.MM.yyyy)"),
        (DATE, "MMMM d, yyyy", "Sept 5, 2024", "'Sept 5, 2024' is not a date (MMMM d, yyyy)"),
        (DATE, "dd.MM.yyyy HH:mm", "31.01.2024 00:01", "'31.01.2024 00:01' is not a date (dd.MM.yyyy HH:mm)"),
        (TIME_MS, "h:mm a", "13:05 pm", "'13:05 pm' is not a time (h:mm a)"),
        (TIME_MS, "HH:mm:ss.SSSSSS", "01:02:03.000004", "'01:02:03.000004' is not a time (HH:mm:ss.SSSSSS)"),
        (STAMP, ["dd.MM.yyyy", "%F"], "x", "'x' is not a timestamp (dd.MM.yyyy or %F)"),
        (STAMP, "yyyy-MM-dd XXX", "2024-01-31", "'2024-01-31' is not a timestamp (yyyy-MM-dd XXX)"),
        (STAMP, "yyyy-MM-dd XXX", "2024-01-31 +19:00", "'2024-01-31 +19:00' is not a timestamp (yyyy-MM-dd XXX)"),
    ],
)
def test_a_cell_of_another_format_is_rejected_with_the_expected_one(
    avro_type: Any, format_: Any, text: str, said: str
) -> None:
    assert cell(avro_type, text, format=format_) == said


def test_of_several_formats_the_first_that_fits_counts() -> None:
    assert cell(DATE, "01/02/2024", format=["dd/MM/yyyy", "MM/dd/yyyy"]) == dt.date(2024, 2, 1)
    assert cell(DATE, "01/02/2024", format=["MM/dd/yyyy", "dd/MM/yyyy"]) == dt.date(2024, 1, 2)
    assert cell(DATE, "13/02/2024", format=["MM/dd/yyyy", "dd/MM/yyyy"]) == dt.date(2024, 2, 13)


BERLIN = {"time_zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-07-01 12:00:00", utc(2024, 7, 1, 10)),
        ("2024-01-01 12:00:00", utc(2024, 1, 1, 11)),
        ("2024-01-01 12:00:00+05:00", utc(2024, 1, 1, 7)),
        ("2024-01-01T12:00:00Z", utc(2024, 1, 1, 12)),
        # The clocks were set forward from 02:00 to 03:00.
        ("2024-03-31 01:59:59", utc(2024, 3, 31, 0, 59, 59)),
        (
            "2024-03-31 02:30:00",
            "'2024-03-31 02:30:00' does not exist in Europe/Berlin: the clocks were set forward over it",
        ),
        ("2024-03-31 03:00:00", utc(2024, 3, 31, 1)),
        # They were set back from 03:00 to 02:00: the earlier of the two counts.
        ("2024-10-27 02:30:00", utc(2024, 10, 27, 0, 30)),
        ("2024-10-27 03:00:00", utc(2024, 10, 27, 2)),
        ("2350-07-01 12:00:00", utc(2350, 7, 1, 10)),
        ("1880-01-01 12:00:00", utc(1880, 1, 1, 11, 6, 32)),
    ],
)
def test_a_timestamp_without_an_offset_is_of_the_columns_zone(text: str, value: Any) -> None:
    assert cell(STAMP, text, **BERLIN) == value
    by_format = cell(
        STAMP, text, format=["yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ssXXX", "%Y-%m-%dT%H:%M:%S%z"], **BERLIN
    )
    assert by_format == value


def test_cells_with_and_without_offset_may_stand_in_one_column() -> None:
    formats = ["dd.MM.yyyy HH:mm", "dd.MM.yyyy HH:mm XXX"]
    definition = table(column("c", STAMP, format=formats, **BERLIN))
    result = csv(definition, "01.07.2024 12:00\n01.07.2024 12:00 +00:00\n01.07.2024 12:00 Z\n")
    assert result.accepted["c"].to_pylist() == [utc(2024, 7, 1, 10), utc(2024, 7, 1, 12), utc(2024, 7, 1, 12)]


GERMAN = {"decimal_separator": ",", "thousands_separator": "."}


@pytest.mark.parametrize(
    ("avro_type", "words", "text", "value"),
    [
        (DECIMAL, GERMAN, "1.234,56", Decimal("1234.56")),
        (DECIMAL, GERMAN, "-1.234.567,8", Decimal("-1234567.80")),
        (DECIMAL, GERMAN, "1234,56", Decimal("1234.56")),
        (DECIMAL, GERMAN, "1234", Decimal("1234.00")),
        (DECIMAL, GERMAN, ",5", Decimal("0.50")),
        (DECIMAL, GERMAN, " 12,50 ", Decimal("12.50")),
        (DECIMAL, {"decimal_separator": ","}, "12,50", Decimal("12.50")),
        (DECIMAL, {"decimal_separator": ",", "thousands_separator": " "}, "1 234,5", Decimal("1234.50")),
        (DECIMAL, {"decimal_separator": ",", "thousands_separator": " "}, " 1\u00a0234,5 ", Decimal("1234.50")),
        (DECIMAL, {"decimal_separator": ",", "thousands_separator": "\u202f"}, "1 234,5", Decimal("1234.50")),
        (DECIMAL, {"thousands_separator": "'"}, "1'234.5", Decimal("1234.50")),
        (DECIMAL, {"thousands_separator": "'"}, "1’234.5", Decimal("1234.50")),
        (DECIMAL, {"thousands_separator": "٬", "decimal_separator": "٫"}, "1٬234٫5", Decimal("1234.50")),
        ("double", GERMAN, "1.234,5e2", 123450.0),
        ("double", GERMAN, "inf", float("inf")),
        ("float", GERMAN, "0,5", 0.5),
        ("int", {"thousands_separator": "."}, "1.234.567", 1234567),
        ("int", {"thousands_separator": "."}, "+1.234", 1234),
        ("long", {"thousands_separator": ","}, "9,223,372,036,854,775,807", 2**63 - 1),
        ("int", {"thousands_separator": "."}, "0", 0),
    ],
)
def test_a_number_is_read_with_its_separators(avro_type: Any, words: Any, text: str, value: Any) -> None:
    assert cell(avro_type, text, **words) == value


@pytest.mark.parametrize(
    ("avro_type", "words", "text", "said"),
    [
        (DECIMAL, GERMAN, "1.2.3", "'1.2.3' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "12.34", "'12.34' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1234.567", "'1234.567' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1.2345", "'1.2345' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "0.123", "'0.123' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1,234.567", "'1,234.567' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1.234,", Decimal("1234.00")),
        (DECIMAL, GERMAN, ".234", "'.234' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1..234", "'1..234' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1,2,3", "'1,2,3' is not a decimal (1.234,56)"),
        (DECIMAL, GERMAN, "1 234", "'1 234' is not a decimal (1.234,56)"),
        (DECIMAL, {"decimal_separator": ","}, "1.5", "'1.5' is not a decimal (1234,56)"),
        (
            DECIMAL,
            GERMAN,
            "1,005",
            "1,005 does not fit decimal(9,2): 7 digits before and 2 after the point",
        ),
        ("double", GERMAN, "12.5", "'12.5' is not a double (1.234,56)"),
        ("int", {"thousands_separator": "."}, "12.34", "'12.34' is not an int (1.234)"),
        (
            "int",
            {"thousands_separator": " "},
            "3 000 000 000",
            "3 000 000 000 does not fit int (-2147483648 to 2147483647)",
        ),
        ("int", {"thousands_separator": "."}, "1,5", "'1,5' is not an int (1.234)"),
    ],
)
def test_a_number_that_is_grouped_strangely_is_rejected(avro_type: Any, words: Any, text: str, said: Any) -> None:
    assert cell(avro_type, text, **words) == said


def test_other_cells_never_matter() -> None:
    definition = table(column("c", DECIMAL, **GERMAN))
    texts = ["1.234,5", "12.34", None, "7", "1.2.3", "-1.234.567", "€ 5", "1.234,5"]
    result = csv(definition, "".join(f'"{text}"\n' if text else "\n" for text in texts).replace("\n\n", "\nx\n"))
    assert [one.as_py() for one in result.accepted["c"]] == [
        Decimal("1234.50"),
        Decimal("7.00"),
        Decimal("-1234567.00"),
        Decimal("1234.50"),
    ]
    assert result.rejected is not None
    assert result.rejected["row"].to_pylist() == [2, 3, 5, 7]


def test_texts_for_true_false_and_null() -> None:
    yes_no = {"true_texts": ["ja", "X"], "false_texts": ["nein", ""], "null_texts": ["unbekannt", "-"]}
    definition = table(column("c", ["null", "boolean"], **yes_no), column("i", "int"))
    result = csv(definition, "JA,1\nx,2\nnein,3\n,4\nunbekannt,5\n - ,6\ntrue,7\nUnbekannt,8\n")
    assert result.accepted["c"].to_pylist() == [True, True, False, False, None, None]
    assert result.rejected is not None
    assert [row[0]["message"] for row in result.rejected["reasons"].to_pylist()] == [
        "'true' is not a boolean (ja or X or nein or '')",
        "'Unbekannt' is not a boolean (ja or X or nein or '')",
    ]


def test_a_text_for_null_in_a_required_column_is_a_missing_value() -> None:
    definition = table(column("c", "string", null_texts=["n/a"]), column("i", "int", null_texts=["n/a"]))
    result = csv(definition, "n/a,1\nx,n/a\n,3\n")
    assert result.accepted["c"].to_pylist() == [""]
    assert reasons(result) == [[("c", "required")], [("i", "required")]]


def test_trim_removes_white_space_and_what_is_left_may_be_null() -> None:
    definition = table(
        column("a", ["null", "string"], trim=True, null_texts=["-"]),
        column("e", ["null", ENUM], trim=True),
        column("n", ["null", "int"], trim=True),
        column("r", "string", trim=True),
    )
    body = '  x  ,\u00a0RED\u00a0,\u00a07 , y\n - ,  ,  ,  \n"",GREEN,1,"a b "\n'
    result = csv(definition, body)
    assert result.accepted.select(["a", "e", "n", "r"]).to_pylist() == [
        {"a": "x", "e": "RED", "n": 7, "r": "y"},
        {"a": None, "e": None, "n": None, "r": ""},
        {"a": "", "e": "GREEN", "n": 1, "r": "a b"},
    ]


def test_broken_text_beside_trimmed_cells_is_one_reason() -> None:
    definition = table(column("a", "string", trim=True), column("i", "int"))
    result = csv(definition, "x,1\n y ,2\n")
    assert result.rejected is None

    layout = TextLayout(("a", "i"), ",", '"', "")
    broken = judged(definition, "csv", b"\xff ,1\n y ,2\n", 2, layout=layout)
    assert reasons(broken) == [[("a", "utf8")]]
    assert broken.accepted["a"].to_pylist() == ["y"]


def test_the_tables_defaults_hold_for_every_column() -> None:
    written = {
        "date_format": "dd.MM.yyyy",
        "timestamp_format": "dd.MM.yyyy HH:mm",
        "time_zone": "Europe/Berlin",
        "decimal_separator": ",",
        "thousands_separator": ".",
        "null_texts": ["NULL"],
    }
    definition = table(
        column("d", ["null", DATE]), column("t", STAMP), column("x", "double"), column("n", "int"), written=written
    )
    result = csv(definition, 'NULL,01.07.2024 12:00,"1.234,5",1.000\n31.12.2024,01.07.2024 12:00,"0,5",5\n')
    assert result.accepted.select(["d", "t", "x", "n"]).to_pylist() == [
        {"d": None, "t": utc(2024, 7, 1, 10), "x": 1234.5, "n": 1000},
        {"d": dt.date(2024, 12, 31), "t": utc(2024, 7, 1, 10), "x": 0.5, "n": 5},
    ]


def everything() -> Any:
    return table(
        column("d", ["null", DATE], format="dd.MM.yyyy", header="Datum", null_texts=["-"]),
        column("x", ["null", DECIMAL], **GERMAN),
        column("f", ["null", "double"], **GERMAN),
        column("n", ["null", "int"], thousands_separator="."),
        column("b", ["null", "boolean"], true_texts=["ja"], false_texts=["nein"]),
    )


def values(result: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.accepted.select(["d", "x", "f", "n", "b"]).to_pylist()
    return rows


def test_strings_of_json_lines_are_read_as_the_column_is_written() -> None:
    result = jsonl(
        everything(),
        {"Datum": "31.01.2024", "x": "1.234,56", "f": "0,5", "n": "1.000", "b": "ja"},
        {"d": " - ", "x": 1234.56, "f": 0.5, "n": 1000, "b": True},
        {"d": 19753, "x": "7", "f": None},
        {"d": "2024-01-31", "x": "1.5", "f": "1.5", "n": "1.5", "b": "yes"},
    )
    assert values(result) == [
        {"d": dt.date(2024, 1, 31), "x": Decimal("1234.56"), "f": 0.5, "n": 1000, "b": True},
        {"d": None, "x": Decimal("1234.56"), "f": 0.5, "n": 1000, "b": True},
        {"d": dt.date(2024, 1, 31), "x": Decimal("7.00"), "f": None, "n": None, "b": None},
    ]
    assert reasons(result) == [[(name, "type") for name in "dxfnb"]]


def test_numbers_of_json_have_a_point_however_text_is_written() -> None:
    assert values(jsonl(everything(), {"x": 1234.56, "f": 1.5}))[0] == {
        "d": None, "x": Decimal("1234.56"), "f": 1.5, "n": None, "b": None,
    }  # fmt: skip


def test_a_number_in_json_is_never_text_unless_the_column_says_how_it_is_written() -> None:
    definition = table(column("f", "double"), column("b", "boolean"))
    assert reasons(jsonl(definition, {"f": "0.5", "b": "true"})) == [[("f", "type"), ("b", "type")]]


def test_strings_of_parquet_are_read_as_the_column_is_written() -> None:
    rows = pa.table(
        {
            "Datum": ["31.01.2024", "-", "x"],
            "x": ["1.234,56", None, "7"],
            "f": pa.array(["0,5", "1", "1"], pa.large_string()),
            "n": ["1.000", "5", "5"],
            "b": ["ja", "NEIN", "ja"],
        }
    )
    result = arrow(everything(), rows)
    assert values(result) == [
        {"d": dt.date(2024, 1, 31), "x": Decimal("1234.56"), "f": 0.5, "n": 1000, "b": True},
        {"d": None, "x": None, "f": 1.0, "n": 5, "b": False},
    ]
    assert reasons(result) == [[("d", "type")]]


def test_typed_values_of_parquet_and_avro_do_not_care_how_text_is_written() -> None:
    rows = pa.table({"d": [dt.date(2024, 1, 31)], "x": [Decimal("1234.56")], "f": [0.5], "n": [1000], "b": [True]})
    same = {"d": dt.date(2024, 1, 31), "x": Decimal("1234.56"), "f": 0.5, "n": 1000, "b": True}
    assert values(arrow(everything(), rows)) == [same]
    assert values(arrow(everything(), rows.set_column(1, "x", pa.array([1234.56])))) == [same]
    fields = [
        {"name": "d", "type": DATE},
        {"name": "x", "type": DECIMAL},
        {"name": "f", "type": "double"},
        {"name": "n", "type": "int"},
        {"name": "b", "type": "boolean"},
    ]
    assert values(avro(everything(), fields, same)) == [same]


def test_a_file_may_use_the_columns_title_its_name_or_a_former_name() -> None:
    definition = table(column("day", DATE, header="Datum", aliases=["d"]), column("i", "int"))
    for title in ("Datum", "day", "d"):
        result = csv(definition, "2024-01-31,1\n", title, "i")
        assert result.accepted["day"].to_pylist() == [dt.date(2024, 1, 31)]
        assert jsonl(definition, {title: "2024-01-31", "i": 1}).accepted.num_rows == 1


def test_the_example_is_taken_but_for_its_two_mistakes() -> None:
    folder = Path(__file__).parents[2] / "examples" / "messy"
    definition = define("messy", parse_table(yaml.safe_load((folder / "orders.yaml").read_text())), 1)
    cutter = open_cutter(definition, UploadOptions())
    (piece,) = [*cutter.feed((folder / "orders.csv").read_bytes()), *cutter.finish()]
    assert (piece.rows, cutter.repeated_headers()) == (5, 1)
    result = judged(definition, "csv", piece.body, 5, layout=piece.layout, first_line=piece.first_line)
    assert result.accepted.select(["id", "customer", "placed", "due", "amount", "paid"]).to_pylist() == [
        {
            "id": 1001, "customer": "Anna Müller", "placed": utc(2024, 3, 1, 8, 15), "due": dt.date(2024, 3, 15),
            "amount": Decimal("1234.56"), "paid": True,
        },
        {
            "id": 1003, "customer": "Carl & Co.", "placed": utc(2024, 4, 1, 22), "due": None,
            "amount": Decimal("-5.90"), "paid": True,
        },
        {
            "id": 1005, "customer": "Emil Groß", "placed": utc(2024, 4, 3, 16, 5), "due": dt.date(2024, 4, 17),
            "amount": Decimal("999.00"), "paid": False,
        },
    ]  # fmt: skip
    assert result.rejected is not None
    assert result.rejected["line"].to_pylist() == [3, 6]
    assert [[one["message"] for one in row] for row in result.rejected["reasons"].to_pylist()] == [
        ["'31.03.2024 02:30' does not exist in Europe/Berlin: the clocks were set forward over it"],
        ["'12.34' is not a decimal (1.234,56)"],
    ]
