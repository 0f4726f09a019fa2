"""A cast that fails, tried on halves until only the cells that cannot be cast are left: they become null."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.validate.faults import Rows


def cast_each(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
    """The array as `target`, and the positions of the cells that are none. Each cell is judged by the same cast."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    _halve(array, 0, target, parts, bad)
    return pa.concat_arrays(parts) if parts else pa.nulls(0, target), np.array(bad, np.int64)


def _halve(array: pa.Array, start: int, target: pa.DataType, parts: list[pa.Array], bad: list[int]) -> None:
    try:
        parts.append(pc.cast(array, target))
    except pa.ArrowInvalid:
        if len(array) == 1:
            parts.append(pa.nulls(1, target))
            bad.append(start)
            return
        half = len(array) // 2
        _halve(array.slice(0, half), start, target, parts, bad)
        _halve(array.slice(half), start + half, target, parts, bad)
