"""Key columns in, a 128-bit hash per row out (two uint64 lanes). The function never changes: hashes are stored beside each
data file. Equal hashes count as equal keys. Widening a column (int to long, float to double) does not change its hashes.
Refuses nested types.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.model.errors import Invalid

U64 = npt.NDArray[np.uint64]
Cells = Any  # a pyarrow Array or ChunkedArray

# Longer cells are digested first, so that the loop over words below stays short.
LONGEST_WORDWISE_BYTES = 128
# Rows per block: the lanes and their temporaries then fit into the processor's cache.
BLOCK_ROWS = 16_384

_SEEDS = (0x6D696C6C72616365, 0x9AE16A3B2F90404F)
_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_FINAL = (
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
)
_SHIFTS = ((np.uint64(30), np.uint64(27), np.uint64(31)), (np.uint64(33), np.uint64(29), np.uint64(32)))
_TAGS = {"int": 1, "float": 2, "bool": 3, "date": 4, "timestamp": 5, "time": 6, "decimal": 7, "string": 8, "binary": 9}
_NULL_TAG = np.uint64(0xA0761D6478BD642F)
_CANONICAL_NAN = np.float64("nan")


class Lanes:
    """The lanes of a block of rows. Adding a word is a bijection, so keys of one word never collide."""

    __slots__ = ("lanes",)

    def __init__(self, rows: int) -> None:
        self.lanes: tuple[U64, U64] = (
            np.full(rows, _SEEDS[0], dtype=np.uint64),
            np.full(rows, _SEEDS[1], dtype=np.uint64),
        )

    def absorb(self, words: U64 | np.uint64) -> None:
        for number, lane in enumerate(self.lanes):
            np.bitwise_xor(lane, words * _SPREAD[number], out=lane)
            _finalise(lane, number)

    def absorb_at(self, rows: npt.NDArray[np.intp], words: U64) -> None:
        for number, lane in enumerate(self.lanes):
            part = lane[rows]
            part ^= words * _SPREAD[number]
            _finalise(part, number)
            lane[rows] = part


def _finalise(lane: U64, number: int) -> None:
    first, second, third = _SHIFTS[number]
    lane ^= lane >> first
    lane *= _FINAL[number][0]
    lane ^= lane >> second
    lane *= _FINAL[number][1]
    lane ^= lane >> third


def hash_keys(columns: Sequence[Cells]) -> tuple[U64, U64]:
    """The hash of each row's key. The order of the columns matters, their names do not."""
    arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    rows = len(arrays[0])
    first, second = np.empty(rows, dtype=np.uint64), np.empty(rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, rows, BLOCK_ROWS):
            block = _hash_block([array.slice(start, BLOCK_ROWS) for array in arrays])
            first[start : start + BLOCK_ROWS], second[start : start + BLOCK_ROWS] = block.lanes
    return first, second


def _hash_block(arrays: Sequence[Cells]) -> Lanes:
    lanes = Lanes(len(arrays[0]))
    for array in arrays:
        before = tuple(lane.copy() for lane in lanes.lanes) if array.null_count else None
        _absorb_column(lanes, array)
        if before is not None:
            is_null = array.is_null().to_numpy(zero_copy_only=False)
            for number, lane in enumerate(lanes.lanes):
                marked = before[number] ^ _NULL_TAG
                _finalise(marked, number)
                lane[is_null] = marked[is_null]
    return lanes


def _absorb_column(lanes: Lanes, array: Cells) -> None:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        _absorb_bytes(lanes, array.cast(pa.large_string()), "string")
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        _absorb_bytes(lanes, array.cast(pa.large_binary()), "binary")
    elif pa.types.is_decimal(kind):
        _absorb_decimal(lanes, array)
    elif pa.types.is_dictionary(kind):
        _absorb_column(lanes, array.cast(kind.value_type))
    else:
        family, words = _words_of(array)
        lanes.absorb(np.uint64(_TAGS[family]))
        lanes.absorb(words)


def _words_of(array: Cells) -> tuple[str, U64]:
    kind = array.type
    if pa.types.is_integer(kind):
        return "int", _as_words(array, pa.int64())
    if pa.types.is_boolean(kind):
        return "bool", _as_words(array.cast(pa.int8()), pa.int64())
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        # Adding zero turns -0.0 into 0.0. All NaNs become the same NaN.
        return "float", np.where(np.isnan(values), _CANONICAL_NAN, values + 0.0).view(np.uint64)
    if pa.types.is_date(kind):
        return "date", _as_words(array.cast(pa.date32()).cast(pa.int32()), pa.int64())
    if pa.types.is_timestamp(kind):
        return "timestamp", _as_words(array.cast(pa.timestamp("us", tz=kind.tz), safe=False), pa.int64())
    if pa.types.is_time(kind):
        return "time", _as_words(array.cast(pa.time64("us"), safe=False), pa.int64())
    raise Invalid(f"A column of type {kind} cannot be part of a primary key.", remedy="Use columns of scalar types.")


def _as_words(array: Cells, integer: pa.DataType) -> U64:
    values = array.cast(integer, safe=False)
    filled = values.fill_null(0) if values.null_count else values
    words: U64 = filled.to_numpy(zero_copy_only=False).view(np.uint64)
    return words


def _absorb_decimal(lanes: Lanes, array: Cells) -> None:
    wide = array.cast(pa.decimal128(38, array.type.scale))
    halves = np.frombuffer(wide.buffers()[1], dtype="<u8")[2 * wide.offset : 2 * (wide.offset + len(wide))]
    lanes.absorb(np.uint64(_TAGS["decimal"] | array.type.scale << 8))
    lanes.absorb(halves[0::2].copy())
    lanes.absorb(halves[1::2].copy())


def _absorb_bytes(lanes: Lanes, array: Cells, family: str) -> None:
    offsets = np.frombuffer(array.buffers()[1], dtype="<i8")[array.offset : array.offset + len(array) + 1]
    raw = array.buffers()[2]
    begin, end = int(offsets[0]), int(offsets[-1])
    # Eight spare bytes, so that the last word of the last cell can be read completely.
    data = np.zeros(end - begin + 8, dtype=np.uint8)
    if raw is not None:
        data[:-8] = np.frombuffer(raw, dtype=np.uint8)[begin:end]
    starts, lengths = offsets[:-1] - begin, np.diff(offsets)
    lanes.absorb(np.uint64(_TAGS[family]))
    is_long = lengths > LONGEST_WORDWISE_BYTES
    if is_long.any():
        starts, lengths, data = _digest_long_cells(starts, lengths, data, np.flatnonzero(is_long))
    _absorb_words(lanes, starts, lengths, data)
    lanes.absorb(np.diff(offsets).view(np.uint64))


def _digest_long_cells(
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.intp],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    view = data.data
    digests = b"".join(
        hashlib.blake2b(view[starts[row] : starts[row] + lengths[row]], digest_size=16).digest() for row in rows
    )
    starts, lengths = starts.copy(), lengths.copy()
    starts[rows] = len(data) - 8 + 16 * np.arange(len(rows))
    lengths[rows] = 16
    tail = np.frombuffer(digests + bytes(8), dtype=np.uint8)
    return starts, lengths, np.concatenate([data[:-8], tail])


def _absorb_words(
    lanes: Lanes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> None:
    unaligned: U64 = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    rows = np.flatnonzero(lengths > 0)
    position = 0
    while len(rows):
        words = unaligned[starts[rows] + position]
        remaining = lengths[rows] - position
        short = remaining < 8
        keep = (np.uint64(1) << (np.uint64(8) * remaining[short].astype(np.uint64))) - np.uint64(1)
        words[short] &= keep
        if len(rows) == len(lengths):
            lanes.absorb(words)
        else:
            lanes.absorb_at(rows, words)
        position += 8
        rows = rows[remaining > 8]
