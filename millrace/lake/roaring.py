"""Serialized roaring bitmaps, looked at before a library reads them that believes them: whether all of a bitmap is there, in
order, and how many positions it has. Others write deletion vectors, too.

The format is described at https://github.com/RoaringBitmap/RoaringFormatSpec."""

import struct

import numpy as np

_NO_RUNS, _RUNS = 12346, 12347
# Smaller bitmaps with runs have no offsets of their containers.
_LEAST_OFFSETS = 4
_MOST_ARRAY = 4096
_BITSET_BYTES = 8192
_CONTAINERS = 1 << 16
_MOST = 1 << 32


def checked_positions(data: bytes, most: int = _MOST) -> int:
    """How many positions the 32-bit bitmap has. ValueError if it is not a whole and valid one, or has more than `most`."""
    try:
        return _checked(memoryview(data), most)
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error


def _checked(data: memoryview, most: int) -> int:
    (cookie,) = struct.unpack_from("<I", data)
    has_runs = cookie & 0xFFFF == _RUNS
    if has_runs:
        count, at = (cookie >> 16) + 1, 4
        flags, at = bytes(data[at : at + (count + 7) // 8]), at + (count + 7) // 8
    elif cookie == _NO_RUNS:
        (count,), flags, at = struct.unpack_from("<I", data, 4), b"", 8
    else:
        raise ValueError("it is no roaring bitmap")
    if count > _CONTAINERS:
        raise ValueError(f"it claims {count} containers")
    heads, at = _numbers(data, at, "<u2", 2 * count).reshape(-1, 2).astype(np.int64), at + 4 * count
    if (np.diff(heads[:, 0]) <= 0).any():
        raise ValueError("its containers are not in order")
    if int((heads[:, 1] + 1).sum()) > most:
        raise ValueError(f"it has more than {most} positions")
    offsets = None
    if not has_runs or count >= _LEAST_OFFSETS:
        offsets, at = _numbers(data, at, "<u4", count), at + 4 * count
    for number, size in enumerate((heads[:, 1] + 1).tolist()):
        if offsets is not None and int(offsets[number]) != at:
            raise ValueError("a container is not where it should be")
        is_run = has_runs and bool(flags[number // 8] >> number % 8 & 1)
        at = _container_end(data, at, size, is_run)
    return int((heads[:, 1] + 1).sum())


def _container_end(data: memoryview, at: int, size: int, is_run: bool) -> int:
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        runs = _numbers(data, at + 2, "<u2", 2 * count).reshape(-1, 2).astype(np.int64)
        ends = runs[:, 0] + runs[:, 1]
        if (runs[1:, 0] <= ends[:-1]).any() or (ends >= _CONTAINERS).any() or (runs[:, 1] + 1).sum() != size:
            raise ValueError("its runs are not valid")
        return int(at + 2 + 4 * count)
    if size <= _MOST_ARRAY:
        if (np.diff(_numbers(data, at, "<u2", size).astype(np.int64)) <= 0).any():
            raise ValueError("its positions are not in order")
        return int(at + 2 * size)
    words = _numbers(data, at, "u1", _BITSET_BYTES)
    if int(np.unpackbits(words).sum()) != size:
        raise ValueError("a container has another number of positions than it claims")
    return at + _BITSET_BYTES


def _numbers(
    data: memoryview, at: int, kind: str, count: int
) -> "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]":
    size = count * np.dtype(kind).itemsize
    if at + size > len(data):
        raise ValueError("it is cut off")
    return np.frombuffer(data[at : at + size], dtype=kind)
