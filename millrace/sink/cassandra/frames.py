"""Arrow columns in, the bytes of Cassandra's native protocol out: rows as values of a prepared statement, many at a time.

The driver binds and serialises value by value in Python; here a column is laid out with a few array operations. Rows of one
partition travel together, as an unlogged batch that the server applies as one mutation."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cassandra.protocol import BatchMessage

ROWS_PER_BATCH = 100
# Well below what a commit log segment takes of one mutation.
BATCH_BYTES = 1 << 20
UNLOGGED = 1
_FIRST_WITH_WIDE_FLAGS = 5
# Cassandra counts days from the middle of an unsigned number.
_EPOCH_DAY = 1 << 31
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A column as bytes on the wire: cells of one `width`, or cells in `data` with `lengths`, -1 for null."""

    lengths: Numbers
    data: Bytes
    width: int | None = None


def cells_of(column: pa.Array) -> Cells:
    """Numbers have the width of the table's columns, text and bytes stay as they are, decimals are a scale and an integer."""
    kind = column.type
    if pa.types.is_decimal(kind):
        column, kind = _decimals(column), pa.binary()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _variable(column)
    if pa.types.is_boolean(kind):
        return _fixed(column, column.cast(pa.uint8()), "u1")
    if pa.types.is_floating(kind):
        return _fixed(column, column.cast(pa.float64()), ">f8")
    if pa.types.is_date(kind):
        return _fixed(column, pc.add(column.cast(pa.int32()).cast(pa.int64()), _EPOCH_DAY).cast(pa.uint32()), ">u4")
    return _fixed(column, column.cast(pa.int64()), ">i8")


def small_numbers(values: Numbers) -> Cells:
    """Four bytes each: what a time to live takes."""
    data = values.astype(">i4").view(np.uint8)
    return Cells(np.full(len(values), 4, dtype=np.int64), data, 4)


def _fixed(column: pa.Array, values: pa.Array, form: str) -> Cells:
    plain = values.fill_null(0).to_numpy(zero_copy_only=False).astype(form)
    lengths = np.full(len(column), plain.itemsize, dtype=np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return Cells(lengths, plain.view(np.uint8), plain.itemsize)


def _variable(column: pa.Array) -> Cells:
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    buffer = column.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    if column.null_count:
        # The bytes behind a null have no meaning.
        filled = column.fill_null(b"")
        return Cells(np.where(column.is_null().to_numpy(zero_copy_only=False), -1, lengths), _variable(filled).data)
    return Cells(lengths, data[offsets[0] : offsets[-1]])


def _decimals(column: pa.Array) -> pa.Array:
    scale = struct.pack(">i", column.type.scale)
    return pa.array([None if cell is None else scale + _whole(cell, column.type.scale) for cell in column.to_pylist()])


def _whole(cell: Any, scale: int) -> bytes:
    number = int(cell.scaleb(scale))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows one after the other, each as a query of a batch. `starts` has one entry more than there are rows."""

    data: Bytes
    starts: Numbers

    def batch(self, first: int, last: int) -> bytes:
        return self.data[self.starts[first] : self.starts[last]].tobytes()


def lay_out(query_id: bytes, columns: Sequence[Cells]) -> EncodedRows:
    rows = len(columns[0].lengths)
    prefix = np.frombuffer(struct.pack(">BH", 1, len(query_id)) + query_id + struct.pack(">H", len(columns)), np.uint8)
    sizes = np.full(rows, len(prefix) + 4 * len(columns), dtype=np.int64)
    for column in columns:
        sizes += np.maximum(column.lengths, 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    out = np.empty(starts[-1], dtype=np.uint8)
    at = starts[:-1].copy()
    _put_fixed(out, at, np.broadcast_to(prefix, (rows, len(prefix))))
    at += len(prefix)
    for column in columns:
        _put_fixed(out, at, column.lengths.astype(">i4").view(np.uint8).reshape(rows, 4))
        at += 4
        _put(out, at, column)
        at += np.maximum(column.lengths, 0)
    return EncodedRows(out, starts)


def _put(out: Bytes, at: Numbers, column: Cells) -> None:
    if column.width is not None:
        cells = column.data.reshape(len(at), column.width)
        there = column.lengths >= 0
        _put_fixed(out, at if there.all() else at[there], cells if there.all() else cells[there])
        return
    lengths = np.maximum(column.lengths, 0)
    before = np.cumsum(lengths) - lengths
    out[np.repeat(at - before, lengths) + np.arange(len(column.data))] = column.data


def _put_fixed(out: Bytes, at: Numbers, cells: Bytes) -> None:
    out[at[:, None] + np.arange(cells.shape[1])] = cells


def by_partition(columns: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """The order that brings the rows of each partition together, and the number of each row's partition in it."""
    codes = [np.asarray(column.dictionary_encode().indices.fill_null(-1)) for column in columns]
    order = np.lexsort(codes)
    changes = np.zeros(len(order), dtype=bool)
    for code in codes:
        changes[1:] |= code[order][1:] != code[order][:-1]
    return order, np.cumsum(changes)


def cuts(partitions: Numbers, starts: Numbers) -> Iterator[tuple[int, int]]:
    """Batches of one partition each, bounded in rows and in bytes: from a row up to another."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(partitions)) + 1, [len(partitions)]])
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        first = begin
        while first < end:
            fitting = int(np.searchsorted(starts, starts[first] + BATCH_BYTES, side="right")) - 1
            last = max(first + 1, min(end, first + ROWS_PER_BATCH, fitting))
            yield first, last
            first = last


class EncodedBatch(BatchMessage):  # type: ignore[misc]
    """A batch whose rows are laid out already."""

    def __init__(self, rows: int, body: bytes, consistency_level: int) -> None:
        super().__init__(None, (), consistency_level)
        self._rows = rows
        self._body = body

    def send_body(self, f: Any, protocol_version: int) -> None:
        f.write(struct.pack(">BH", UNLOGGED, self._rows))
        f.write(self._body)
        flags = ">HI" if protocol_version >= _FIRST_WITH_WIDE_FLAGS else ">HB"
        f.write(struct.pack(flags, self.consistency_level, 0))


def routing_key(parts: Sequence[bytes]) -> bytes:
    """How the driver finds the replicas of a partition."""
    if len(parts) == 1:
        return parts[0]
    return b"".join(struct.pack(">H", len(part)) + part + b"\x00" for part in parts)
