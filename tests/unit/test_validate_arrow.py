"""Arrow and Avro chunks: casts that lose nothing, faults where they would, and files that cannot be read."""

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest

from millrace.arrow.types import stored_schema
from millrace.declare.table import parse_table
from millrace.formats.avro_container import ContainerHeader
from millrace.model.chunk import ChunkHeader
from millrace.model.table import Definition, define
from millrace.validate.judge import JudgedChunk, judge

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
TIME_MS = {"type": "int", "logicalType": "time-millis"}
TIME_US = {"type": "long", "logicalType": "time-micros"}
STAMP = {"type": "long", "logicalType": "timestamp-micros"}
STAMP_MS = {"type": "long", "logicalType": "timestamp-millis"}
ENUM = {"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}
UUID = {"type": "string", "logicalType": "uuid"}
RECORD = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
}


def table(*fields: dict[str, Any], key: list[str] | None = None, **more: Any) -> Definition:
    schema = {"type": "record", "name": "t", "fields": list(fields)}
    return define("tenant", parse_table({"schema": schema, "primary_key": key or [], **more}), 1)


def judged(definition: Definition, body: bytes, rows: int, encoding: str = "arrow") -> JudgedChunk:
    header = ChunkHeader("imp_1", 0, 77, definition.fingerprint, encoding, 1, 0, rows, len(body), 9)
    result = judge(header, body, definition)
    assert result.accepted.schema == stored_schema(definition.columns)
    result.accepted.validate(full=True)
    if result.rejected is not None:
        result.rejected.validate(full=True)
        assert set(result.rejected["line"].to_pylist()) == {0}
    return result


def stream(given: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, given.schema) as writer:
        writer.write_table(given, max_chunksize=2)
    return sink.getvalue()


def container(schema: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec="deflate")
    return sink.getvalue()


def cells(avro: Any, given: pa.Array) -> list[Any]:
    """For each cell the stored value, or (rule, message)."""
    definition = table({"name": "c", "type": ["null", avro]})
    result = judged(definition, stream(pa.table({"c": given})), len(given))
    found: dict[int, Any] = dict(
        zip(result.accepted["_row"].to_pylist(), result.accepted["c"].to_pylist(), strict=True)
    )
    if result.rejected is not None:
        for row, reasons in zip(
            result.rejected["row"].to_pylist(), result.rejected["reasons"].to_pylist(), strict=True
        ):
            found[row] = (reasons[0]["rule"], reasons[0]["message"])
    return [found[row] for row in range(1, len(given) + 1)]


def moment(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("avro", "given", "values"),
    [
        ("int", pa.array([1, None, 2**31], pa.int64()), [1, None, ("type", "does not fit int")]),
        ("int", pa.array([1.0, 1.5], pa.float64()), [1, ("type", "does not fit int")]),
        ("int", pa.array(["7", "x"]), [7, ("type", "'x' is not an int")]),
        ("int", pa.array(["7", "x"]).dictionary_encode(), [7, ("type", "'x' is not an int")]),
        ("int", pa.array(["7", "x"], pa.string_view()), [7, ("type", "'x' is not an int")]),
        ("int", pa.array([True]), [("type", "of type bool cannot become an int")]),
        ("long", pa.array([1, 2**64 - 1], pa.uint64()), [1, ("type", "does not fit long")]),
        ("double", pa.array([1, 2**53 + 1], pa.int64()), [1.0, ("type", "does not fit double")]),
        ("float", pa.array([0.5, 1e39]), [0.5, ("type", "does not fit float")]),
        ("boolean", pa.array([True, None]), [True, None]),
        ("boolean", pa.array([1]), [("type", "of type int64 cannot become a boolean (true or false)")]),
        ("string", pa.array(["a", "a\0"]), ["a", ("nul", "contains a NUL character")]),
        ("string", pa.array([b"a", b"\xff"], pa.binary()), ["a", ("utf8", "is not valid UTF-8")]),
        ("string", pa.array([12]), ["12"]),
        ("bytes", pa.array([b"\xff\0"], pa.large_binary()), [b"\xff\0"]),
        (ENUM, pa.array(["RED", "BLUE"]), ["RED", ("enum", "'BLUE' is not one of: RED, GREEN")]),
        (DECIMAL, pa.array([Decimal("1.500"), Decimal("1.505")]), [Decimal("1.50"), ("type", "does not fit decimal")]),
        (DECIMAL, pa.array([1.25, 1.125]),
         [Decimal("1.25"), ("range", "1.125 does not fit decimal(5,2): 3 digits before and 2 after the point")]),
        (DATE, pa.array([dt.date(2024, 1, 2)]), [dt.date(2024, 1, 2)]),
        (DATE, pa.array([19724, 99999999]),
         [dt.date(2024, 1, 2), ("range", "99999999 is not a date (YYYY-MM-DD): it must be -719162 to 2932896")]),
        (DATE, pa.array([moment(2024, 1, 2)]), [("type", "of type timestamp[us, tz=UTC] cannot become a date (YYYY-MM-DD)")]),
        (TIME_MS, pa.array([dt.time(0, 0, 1)], pa.time64("us")), [1000]),
        (TIME_US, pa.array([dt.time(0, 0, 1)], pa.time32("ms")), [1_000_000]),
        (STAMP, pa.array([1000, 1001], pa.timestamp("ns")),
         [moment(1970, 1, 1, 0, 0, 0, 1), ("type", "does not fit timestamp-micros")]),
        (STAMP_MS, pa.array([1], pa.timestamp("s", tz="Europe/Prague")), [moment(1970, 1, 1, 0, 0, 1)]),
        (STAMP_MS, pa.array([1500], pa.int64()), [moment(1970, 1, 1, 0, 0, 1, 500000)]),
        (STAMP, pa.array([dt.date(1970, 1, 2)]), [moment(1970, 1, 2)]),
        (RECORD, pa.array([{"x": 1, "y": "a"}, {"x": None, "y": None}, None, {"x": 2, "y": "\0"}]),
         [{"x": 1, "y": "a"}, ("required", "x is required and has no value"), None, ("nul", "y contains a NUL character")]),
        ({"type": "array", "items": "long"}, pa.array([[1, 2], [3, None], []]),
         [[1, 2], ("required", "[] is required and has no value"), []]),
        ({"type": "map", "values": "long"}, pa.array([[("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int64())),
         [[("a", 1)], ("required", ".value is required and has no value")]),
        (RECORD, pa.array([5]), [("type", "of type int64 cannot become a record")]),
    ],
)  # fmt: skip
def test_arrow_cells(avro: Any, given: pa.Array, values: list[Any]) -> None:
    assert cells(avro, given) == values


def test_broken_text_in_a_string_column_is_found() -> None:
    broken = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    assert cells("string", broken) == ["ok", ("utf8", "is not valid UTF-8")]


def test_arrow_rows_are_shown_as_json_with_all_reasons() -> None:
    definition = table(
        {"name": "k", "type": "string"}, {"name": "a", "type": "int"}, {"name": "d", "type": ["null", DATE]}, key=["k"]
    )
    given = pa.table({"odd": [b"\xff", b"y"], "a": ["1", "x"], "k": ["key", None]})
    result = judged(definition, stream(given), 2)
    assert result.accepted.to_pylist() == [
        {"k": "key", "a": 1, "d": None, "_version": 77, "_import": "imp_1", "_row": 1}
    ]
    assert result.rejected is not None
    assert orjson.loads(result.rejected["raw"][0].as_py()) == {"odd": "y", "a": "x", "k": None}
    assert [reason["rule"] for reason in result.rejected["reasons"][0].as_py()] == ["primary_key", "type"]


@pytest.mark.parametrize("encoding", ["arrow", "avro"])
@pytest.mark.parametrize("body", [b"", b"garbage" * 20, b"Obj\x01" + b"\x00" * 30])
def test_a_file_that_cannot_be_read_fails_the_chunk(encoding: str, body: bytes) -> None:
    result = judged(table({"name": "a", "type": "int"}), body, 4, encoding)
    assert result.verdict.failure is not None
    assert (result.verdict.accepted, result.verdict.rejected) == (0, 4)
    assert result.rejected is not None
    assert result.rejected["reasons"][0].as_py()[0]["rule"] == "undecodable"


def test_a_truncated_stream_fails_the_chunk() -> None:
    body = stream(pa.table({"a": list(range(100))}))
    assert judged(table({"name": "a", "type": "int"}), body[: len(body) // 2], 100).verdict.failure is not None


def test_avro_records_of_every_type() -> None:
    types = {
        "i": "int", "l": "long", "f": "float", "g": "double", "b": "boolean", "s": "string", "y": "bytes",
        "n": ["null", "int"], "e": ENUM, "x": {"type": "fixed", "name": "fx", "size": 2}, "c": DECIMAL, "d": DATE,
        "tm": TIME_MS, "tu": TIME_US,
        "sm": STAMP_MS, "su": STAMP, "u": UUID, "r": RECORD,
        "a": {"type": "array", "items": "int"}, "m": {"type": "map", "values": "int"},
    }  # fmt: skip
    fields = [{"name": name, "type": avro} for name, avro in types.items()]
    schema = {"type": "record", "name": "w", "fields": fields}
    record = {
        "i": 1, "l": 2, "f": 0.5, "g": 1.5, "b": True, "s": "é", "y": b"\xff", "n": None, "e": "RED",
        "x": b"ab", "c": Decimal("1.25"),
        "d": dt.date(2024, 1, 2), "tm": dt.time(0, 0, 1), "tu": dt.time(0, 0, 2),
        "sm": moment(2024, 1, 2), "su": moment(2024, 1, 3),
        "u": "123e4567-e89b-12d3-a456-426614174000", "r": {"x": 1, "y": None}, "a": [1, 2], "m": {"k": 1},
    }  # fmt: skip
    result = judged(table(*fields), container(schema, [record, record]), 2, "avro")
    assert result.rejected is None
    expected = record | {"tm": 1000, "tu": 2_000_000, "m": [("k", 1)], "_version": 77, "_import": "imp_1", "_row": 2}
    assert result.accepted.to_pylist()[1] == expected


def test_avro_files_of_an_older_or_newer_schema() -> None:
    writer = {
        "type": "record", "name": "w",
        "fields": [{"name": "a", "type": ["null", "long"]}, {"name": "_version", "type": "long"},
                   {"name": "e", "type": ENUM}, {"name": "e2", "type": "e"}],
    }  # fmt: skip
    definition = table(
        {"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "none"},
        {"name": "e", "type": "string"}, {"name": "e2", "type": "string"},
    )  # fmt: skip
    records = [{"a": a, "_version": 1, "e": "RED", "e2": "GREEN"} for a in (1, None, 2**40)]
    result = judged(definition, container(writer, records), 3, "avro")
    assert result.accepted.select(["a", "b", "e2"]).to_pylist() == [{"a": 1, "b": "none", "e2": "GREEN"}]
    assert result.rejected is not None
    assert [row[0]["rule"] for row in result.rejected["reasons"].to_pylist()] == ["required", "type"]
    assert orjson.loads(result.rejected["raw"][1].as_py())["a"] == 2**40


def as_encoded(avro: Any) -> Any:
    """The type with which fastavro writes any value of that encoding."""
    if isinstance(avro, list):
        return [as_encoded(inner) for inner in avro]
    if not isinstance(avro, dict):
        return {"string": "bytes", "int": "long"}.get(avro, avro)
    return {key: as_encoded(value) for key, value in avro.items() if key != "logicalType"}


def encoded(fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    mark = b"mark" * 4
    fastavro.writer(sink, {"type": "record", "name": "w", "fields": as_encoded(fields)}, records, sync_marker=mark)
    header = ContainerHeader({"type": "record", "name": "w", "fields": fields}, "null", mark).framed("w")
    return header + sink.getvalue().split(mark, 1)[1]


WRAPPED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "column": (lambda avro: avro, lambda value: value),
    "record": (
        lambda avro: {"type": "record", "name": "q", "fields": [{"name": "x", "type": avro}]},
        lambda v: {"x": v},
    ),
    "array": (lambda avro: {"type": "array", "items": ["null", avro]}, lambda value: [value, value]),
    "map": (lambda avro: {"type": "map", "values": avro}, lambda value: {"k": value}),
}


@pytest.mark.parametrize("shape", WRAPPED)
@pytest.mark.parametrize(
    ("avro", "good", "bad"),
    [
        (STAMP_MS, 0, 10**15),
        (STAMP_MS, 0, 2**62),
        (STAMP, 0, 10**18),
        (DATE, 0, 2**31 - 1),
        (DATE, 0, 2**40),
        (TIME_MS, 0, 2**31 - 1),
        (TIME_US, 0, -1),
        (UUID, b"123e4567-e89b-12d3-a456-426614174000", b"nope"),
        ("string", b"ok", b"\xff"),
        ("int", 1, 2**40),
        (DECIMAL, b"\x01", b"\x7f\xff\xff"),
        (DECIMAL, b"\x01", b"\x7f" * 5000),
    ],
)
def test_a_bad_avro_value_costs_its_row_only(shape: str, avro: Any, good: Any, bad: Any) -> None:
    kind, value = WRAPPED[shape]
    fields = [{"name": "id", "type": "int"}, {"name": "c", "type": kind(avro)}]
    records = [{"id": n, "c": value(bad if n == 2 else good)} for n in (1, 2, 3)]
    result = judged(table(*fields), encoded(fields, records), 3, "avro")
    assert result.accepted["id"].to_pylist() == [1, 3]
    assert result.rejected is not None
    assert result.rejected["row"].to_pylist() == [2]
    (reason, *_) = result.rejected["reasons"][0].as_py()
    assert (reason["column"], bool(reason["value"])) == ("c", True)


def test_an_avro_map_key_that_is_no_text_costs_its_row_only() -> None:
    fields = [{"name": "m", "type": {"type": "map", "values": "int"}}]
    body = encoded(fields, [{"m": {key: 1}} for key in ("good", "evil", "fine")]).replace(b"evil", b"\xffvil")
    result = judged(table(*fields), body, 3, "avro")
    assert result.accepted["m"].to_pylist() == [[("good", 1)], [("fine", 1)]]


@pytest.mark.parametrize("local", ["", "local-"])
@pytest.mark.parametrize(("unit", "factor"), [("millis", 1000), ("micros", 10**6), ("nanos", 10**9)])
def test_avro_timestamps_of_any_unit(local: str, unit: str, factor: int) -> None:
    fields = [{"name": "c", "type": {"type": "long", "logicalType": f"{local}timestamp-{unit}"}}]
    result = judged(table({"name": "c", "type": STAMP}), encoded(fields, [{"c": 86_400 * factor}]), 1, "avro")
    assert result.accepted["c"].to_pylist() == [moment(1970, 1, 2)]


def test_avro_decimals_are_exact_whatever_precision_their_writer_claims() -> None:
    wide = {**DECIMAL, "precision": 30, "scale": 4}
    fields = [{"name": "c", "type": {**wide, "precision": 2, "scale": 2}}, {"name": "d", "type": wide}]
    numbers = [-1, 12_345, 10**29]
    records = [{name: number.to_bytes(16, signed=True) for name in "cd"} for number in numbers]
    definition = table({"name": "c", "type": {**wide, "scale": 2}}, {"name": "d", "type": wide})
    result = judged(definition, encoded(fields, records), 3, "avro")
    assert result.accepted["c"].to_pylist() == [Decimal(number).scaleb(-2) for number in numbers]
    assert result.accepted["d"].to_pylist() == [Decimal(number).scaleb(-4) for number in numbers]


def test_unknown_avro_values_are_kept_as_they_are_meant_or_as_they_stand() -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "t", "type": STAMP_MS}, {"name": "s", "type": "string"}]
    records = [{"id": 1, "t": 0, "s": b"a"}, {"id": 2, "t": 10**15, "s": b"b"}, {"id": 3, "t": 0, "s": b"\xff"}]
    result = judged(table(fields[0], unknown_fields="rescue"), encoded(fields, records), 3, "avro")
    assert result.accepted["_rescued"].to_pylist() == [
        '{"s":"a","t":"1970-01-01T00:00:00+00:00"}',
        '{"s":"b","t":1000000000000000}',
    ]
    assert result.rejected is not None
    assert result.rejected["reasons"][0].as_py()[0]["column"] == "s"


def test_a_list_that_cannot_be_cast_costs_its_row_only() -> None:
    given = pa.table({"a": pa.array([[1], [2**40], [3, None], None], pa.list_(pa.int64()))})
    definition = table({"name": "a", "type": ["null", {"type": "array", "items": ["null", "int"]}]})
    assert judged(definition, stream(given), 4).accepted["a"].to_pylist() == [[1], [3, None], None]


def test_a_wrong_row_count_fails_the_chunk() -> None:
    result = judged(table({"name": "a", "type": "int"}), stream(pa.table({"a": [1, 2]})), 3)
    assert result.verdict.failure == "The chunk holds 2 rows, its stamp says 3."
