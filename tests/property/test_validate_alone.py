"""A row's verdict never depends on its neighbours, and whatever the bytes are, there is a verdict and no exception."""

import io
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from millrace.declare.table import parse_table
from millrace.formats.csv_rows import row_spans
from millrace.formats.line_cut import line_spans
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.table import define
from millrace.validate.judge import JudgedChunk, judge
from tests.support.examples import examples

FIELDS: list[dict[str, Any]] = [
    {"name": "k", "type": "string"},
    {"name": "i", "type": "int"},
    {"name": "g", "type": ["null", "double"]},
    {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "s", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "b", "type": ["null", "boolean"]},
    {"name": "y", "type": "bytes"},
    {"name": "r", "type": ["null", {"type": "array", "items": "int"}]},
]
NAMES = tuple(field["name"] for field in FIELDS)
TABLE = define("t", parse_table({"schema": {"type": "record", "name": "t", "fields": FIELDS}, "primary_key": ["k"]}), 1)
LAYOUT = TextLayout(NAMES, ",", '"', "")

CELLS = [
    *(
        b"",
        b'""',
        b"0",
        b" 7 ",
        b"-1",
        b"+3",
        b"2147483648",
        b"1.5",
        b"1.505",
        b"1e400",
        b"1e2",
        b"nan",
        b"inf",
        b"0x1f",
        b"x",
    ),
    *(
        b"true",
        b"NO",
        b"2024-02-29",
        b"2023-02-29",
        b"2024-01-02T03:04:05.5Z",
        b"2024-01-02 03:04:05+02:00",
        b"9999999",
    ),
    *(
        b'"[1,2]"',
        b"[1]",
        b'"[1,null]"',
        b"\xff",
        "é".encode(),
        b"a\0b",
        b'"two\nlines"',
        b'"a""b"',
        b"\xef\xbb\xbfq",
        b"k" * 1025,
    ),
]
cell = st.sampled_from(CELLS) | st.binary(max_size=6).map(lambda given: given.translate(None, b'",\r\n'))
good = st.tuples(
    *(
        st.sampled_from(given)
        for given in ([b"a", b"b"], [b"1"], [b"1.5", b""], [b"2.50"], [b""], [b""], [b"t", b""], [b"z"], [b""])
    )
)
row = (
    (good | st.tuples(*[cell] * len(NAMES)) | st.lists(cell, min_size=1, max_size=12).map(tuple))
    .map(b",".join)
    .filter(bool)
)

number = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 1, 1.5, 1e39, 19724])
)
value = (
    st.none()
    | st.booleans()
    | number
    | st.sampled_from(["a", "1.5", "2024-02-29", "2024-01-02T03:04:05Z", "a\0", "x", "é"])
    | st.lists(st.integers(0, 3) | st.none(), max_size=2)
)
plain = {"k": "a", "i": 1, "c": "1.50", "y": "z"}
record = (
    st.just(plain)
    | st.dictionaries(st.sampled_from([*NAMES, "odd"]), value).map(lambda given: {**plain, **given})
    | st.dictionaries(st.sampled_from(NAMES), value)
    | value
)
line = record.map(lambda given: json.dumps(given, ensure_ascii=False).encode()) | st.binary(
    min_size=1, max_size=12
).map(lambda given: given.translate(None, b"\r\n")).filter(lambda given: bool(given.strip()))


def judged(encoding: str, body: bytes, rows: int, first_row: int) -> JudgedChunk:
    layout = LAYOUT if encoding == "csv" else None
    header = ChunkHeader("imp", 0, 1, TABLE.fingerprint, encoding, first_row, 1, rows, len(body), 0, layout)
    return judge(header, body, TABLE)


def by_row(result: JudgedChunk) -> dict[int, str]:
    """Everything said about each row, except its line."""
    assert result.verdict.failure is None
    found = {row["_row"]: repr(row) for row in result.accepted.to_pylist()}
    if result.rejected is not None:
        for row in result.rejected.drop_columns(["line"]).to_pylist():
            assert row["row"] not in found
            found[row["row"]] = repr(row)
    return found


def check(encoding: str, rows: list[bytes]) -> None:
    together = judged(encoding, b"\n".join(rows) + b"\n", len(rows), 1)
    alone: dict[int, str] = {}
    for number, text in enumerate(rows, 1):
        alone |= by_row(judged(encoding, text + b"\n", 1, number))
    assert by_row(together) == alone
    assert sorted(alone) == list(range(1, len(rows) + 1))
    raws = (
        {}
        if together.rejected is None
        else dict(zip(*(together.rejected[name].to_pylist() for name in ("row", "raw")), strict=True))
    )
    assert all(raw == rows[number - 1] for number, raw in raws.items())


@examples(80)
@given(st.lists(row, min_size=1, max_size=6))
def test_csv_rows(rows: list[bytes]) -> None:
    check("csv", rows)


@examples(80)
@given(st.lists(line, min_size=1, max_size=6))
def test_json_lines(rows: list[bytes]) -> None:
    check("jsonl", rows)


def counted(result: JudgedChunk, rows: int) -> None:
    rejected = 0 if result.rejected is None else result.rejected.num_rows
    assert result.verdict.failure is None
    assert result.accepted.num_rows + rejected == rows
    result.accepted.validate(full=True)


@examples(150)
@given(
    st.lists(
        st.sampled_from([b'"', b",", b"\n", b"\r", b"a", b"1", b"\xff", b"\0", b" "]) | st.binary(max_size=3),
        max_size=60,
    )
)
def test_any_bytes_are_judged_as_csv(parts: list[bytes]) -> None:
    body = b"".join(parts)
    rows = len(row_spans(body, ",", '"').starts)
    counted(judged("csv", body, rows, 1), rows)


@examples(100)
@given(st.lists(line | st.sampled_from([b"\n", b"\r", b"{", b"}", b" "]) | st.binary(max_size=3), max_size=12))
def test_any_bytes_are_judged_as_json_lines(parts: list[bytes]) -> None:
    body = b"".join(parts)
    rows = len(line_spans(body).starts)
    counted(judged("jsonl", body, rows, 1), rows)


def _container() -> bytes:
    sink = io.BytesIO()
    rows = [{"k": "key", "i": number} for number in range(20)]
    fields = [{"name": "k", "type": "string"}, {"name": "i", "type": "int"}]
    fastavro.writer(sink, {"type": "record", "name": "w", "fields": fields}, rows)
    return sink.getvalue()


CONTAINER = _container()


@examples(100)
@given(st.lists(st.tuples(st.integers(0, len(CONTAINER) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_avro_file_is_a_verdict(changes: list[tuple[int, int]]) -> None:
    body = bytearray(CONTAINER)
    for place, octet in changes:
        body[place] = octet
    result = judged("avro", bytes(body), 20, 1)
    assert result.verdict.accepted + result.verdict.rejected == 20
