"""Nested cells as JSON, in every text format: what they are follows from their type, not from what is in them."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pytest

from millrace.sink.encoders.arrow_text import to_csv
from millrace.sink.encoders.json_cells import json_rows
from millrace.sink.files.format import encode

MAP = pa.map_(pa.string(), pa.string())
AT = datetime(2024, 1, 31, 12, tzinfo=UTC)
CELLS: list[tuple[pa.DataType, Any, Any]] = [
    (MAP, [], {}),
    (MAP, [("a", "b")], {"a": "b"}),
    (pa.list_(MAP), [[], [("a", None)], None], [{}, {"a": None}, None]),
    (pa.list_(MAP), [], []),
    (pa.struct([("m", MAP), ("l", pa.list_(pa.int64()))]), {"m": [], "l": []}, {"m": {}, "l": []}),
    (pa.map_(pa.string(), MAP), [("a", [])], {"a": {}}),
    (pa.list_(pa.float64()), [1.5, float("nan"), float("-inf")], [1.5, "NaN", "-Infinity"]),
    (pa.list_(pa.binary()), [b"\x00\xff"], ["00ff"]),
    (pa.list_(pa.decimal128(20, 4)), [Decimal("1.5000")], ["1.5000"]),
    (pa.list_(pa.timestamp("us", tz="UTC")), [AT], ["2024-01-31T12:00:00.000000Z"]),
]


def in_csv(table: pa.Table) -> Any:
    (batch,) = table.to_batches()
    cells = pcsv.read_csv(pa.BufferReader(to_csv(batch)), pcsv.ReadOptions(column_names=["x"]))
    return json.loads(cells["x"][0].as_py())


def in_jsonl(table: pa.Table) -> Any:
    out = io.BytesIO()
    encode(table, "jsonl", "t", out)
    return json.loads(out.getvalue())["x"]


def in_a_record(table: pa.Table) -> Any:
    (batch,) = table.to_batches()
    return json.loads(json_rows(batch)[0])["x"]


@pytest.mark.parametrize("told", [in_csv, in_jsonl, in_a_record])
@pytest.mark.parametrize(("kind", "cell", "expected"), CELLS, ids=[str(kind) for kind, _, _ in CELLS])
def test_a_nested_cell_is_the_same_json_everywhere(told: Any, kind: pa.DataType, cell: Any, expected: Any) -> None:
    assert told(pa.table({"x": pa.array([cell], kind)})) == expected


def test_a_nested_cell_that_is_null_is_null() -> None:
    table = pa.table({"x": pa.array([None], MAP)})
    assert (in_jsonl(table), in_a_record(table)) == (None, None)
    assert bytes(to_csv(table.to_batches()[0])) == b"\n"


def test_the_members_of_a_row_have_one_order_whatever_is_in_them() -> None:
    plain = pa.record_batch({"f": [1.5], "m": pa.array([None], MAP), "s": ["a"]})
    odd = pa.record_batch({"f": [1.5, float("nan")], "m": pa.array([None, []], MAP), "s": ["a", "b"]})
    assert json_rows(plain) == [b'{"f":1.5,"m":null,"s":"a"}']
    assert json_rows(odd) == [b'{"f":1.5,"m":null,"s":"a"}', b'{"f":"NaN","m":{},"s":"b"}']
    assert json_rows(odd.slice(2)) == []
