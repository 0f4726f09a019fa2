"""Rows laid out by columns are, byte for byte, what the driver would have sent value by value."""

import io
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cassandra import ConsistencyLevel, ProtocolVersion
from cassandra.cqltypes import (
    BooleanType,
    BytesType,
    DecimalType,
    DoubleType,
    Int32Type,
    LongType,
    SimpleDateType,
    UTF8Type,
)
from cassandra.protocol import BatchMessage
from cassandra.query import BatchType

from millrace.sink.cassandra import frames as cassandra_frames
from millrace.sink.cassandra.frames import EncodedBatch, by_partition, cells_of, cuts, lay_out, small_numbers

COLUMNS: list[tuple[pa.Array, Any]] = [
    (pa.array([1, None, -(2**63)], pa.int64()), LongType),
    (pa.array([1, None, -(2**31)], pa.int32()), LongType),
    (pa.array([True, None, False]), BooleanType),
    (pa.array([1.5, None, float("-inf")], pa.float32()), DoubleType),
    (pa.array(["", None, "ünïcødé 🚰"]), UTF8Type),
    (pa.array([b"", b"\x00\xff", None], pa.binary()), BytesType),
    (pa.array([date(2024, 2, 29), None, date(1, 1, 1)]), SimpleDateType),
    (pa.array([Decimal("12345.6789"), Decimal("-0.0001"), None], pa.decimal128(20, 4)), DecimalType),
    (pa.array(["a", "b", "c"]).slice(0), UTF8Type),
]


def by_the_driver(rows: int, protocol: int) -> bytes:
    values = [
        [None if cell is None else kind.serialize(cell, protocol) for cell in column.to_pylist()]
        for column, kind in COLUMNS
    ]
    queries = [(True, b"query-id", [column[row] for column in values]) for row in range(rows)]
    sent = io.BytesIO()
    BatchMessage(BatchType.UNLOGGED, queries, ConsistencyLevel.LOCAL_QUORUM).send_body(sent, protocol)
    return sent.getvalue()


@pytest.mark.parametrize("protocol", [ProtocolVersion.V4, ProtocolVersion.V5])
def test_a_batch_is_what_the_driver_would_send(protocol: int) -> None:
    rows = lay_out(b"query-id", [cells_of(column) for column, _ in COLUMNS])
    sent = io.BytesIO()
    EncodedBatch(3, rows.batch(0, 3), ConsistencyLevel.LOCAL_QUORUM).send_body(sent, protocol)
    assert sent.getvalue() == by_the_driver(3, protocol)


def test_slices_of_columns_are_laid_out_as_if_they_were_whole() -> None:
    for column, _ in COLUMNS:
        padded = pa.concat_arrays([column, column, column]).slice(3, 3)
        assert lay_out(b"q", [cells_of(padded)]).data.tobytes() == lay_out(b"q", [cells_of(column)]).data.tobytes()


def test_a_time_to_live_is_a_small_number() -> None:
    assert small_numbers(np.array([86_400])).data.tobytes() == Int32Type.serialize(86_400, 4)


def test_rows_of_a_partition_travel_together_in_batches_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [pa.array([1, 2, 1, None, 2, 1] * 50), pa.array(["a", "a", "a", "b", "a", "c"] * 50)]
    order, partitions = by_partition(keys)
    together = [(keys[0][at].as_py(), keys[1][at].as_py()) for at in order.tolist()]
    assert sorted(order.tolist()) == list(range(300))
    assert len(set(together)) == partitions[-1] + 1 == 4
    starts = np.arange(301) * 10
    found = list(cuts(partitions, starts))
    assert [first for first, _ in found[1:]] == [last for _, last in found[:-1]]
    assert all(len(set(together[first:last])) == 1 for first, last in found)
    assert all(last - first <= cassandra_frames.ROWS_PER_BATCH for first, last in found)
    monkeypatch.setattr(cassandra_frames, "BATCH_BYTES", 25)
    assert max(last - first for first, last in cuts(partitions, starts)) == 2
    monkeypatch.setattr(cassandra_frames, "BATCH_BYTES", 5)
    assert len(list(cuts(partitions, starts))) == 300, "a row that is too large alone goes alone"
