"""Casts an array whose cast fails: it tries halves until only the cells that cannot be cast are left. These become null."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from millrace.validate.faults import Rows, indices


def cast_each(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
    """The array as `target`, and the positions of the cells that cannot be cast. The same cast judges all cells."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    survivors, lost = _survivors(array, target)
    _halve(survivors, 0, target, parts, bad)
    return pa.concat_arrays(parts), np.union1d(lost, np.array(bad, np.int64))


def _survivors(array: pa.Array, target: pa.DataType) -> tuple[pa.Array, Rows]:
    """Blanks, in one step, all numbers that a cast to an integer type would change, so that many bad cells cost no more than
    one. The checking cast does the rest."""
    none = np.empty(0, np.int64)
    if not pat.is_integer(target) or not (pat.is_integer(array.type) or pat.is_floating(array.type)):
        return array, none
    there = pc.cast(array, target, safe=False)
    kept = pc.equal(pc.cast(there, array.type, safe=False), array)
    if pc.all(kept).as_py() is not False:
        return array, none
    return pc.if_else(kept, array, pa.scalar(None, array.type)), indices(pc.invert(kept).fill_null(False))


def _halve(array: pa.Array, start: int, target: pa.DataType, parts: list[pa.Array], bad: list[int]) -> None:
    try:
        parts.append(pc.cast(array, target))
    except pa.ArrowInvalid:
        if len(array) == 1:
            parts.append(pa.nulls(1, target))
            bad.append(start)
            return
        half = len(array) // 2
        _halve(_part(array, 0, half), start, target, parts, bad)
        _halve(_part(array, half, len(array)), start + half, target, parts, bad)


def _part(array: pa.Array, start: int, end: int) -> pa.Array:
    """Copies slices of lists and maps: Arrow would cast the items of their neighbours too."""
    if pat.is_nested(array.type):
        return array.take(pa.array(np.arange(start, end)))
    return array.slice(start, end - start)
