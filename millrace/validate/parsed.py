"""What every format's reader hands to the judge: typed columns, faults, and a way back to a row's original bytes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.columns import Column
from millrace.validate.faults import RowFault, Rows, indices, lossy, same

MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Originals:
    """The original bytes of some rows and how many lines each lies behind the chunk's first (None: no lines)."""

    raw: pa.Array
    lines: Rows | None


@dataclass(frozen=True, slots=True)
class Parsed:
    """`columns` as they were asked for, of one length; `positions` is the chunk's row of each entry (None: all in order).

    `faults` name rows of the chunk. `originals` fetches the bytes of the rows it is given. Along the columns run `marks`,
    the text that says of each row whether it deletes, and `rescued`, what else the rows hold; None where nobody asked."""

    columns: list[pa.Array]
    positions: Rows | None
    faults: list[RowFault]
    rows: int
    originals: Callable[[Rows], Originals]
    marks: pa.Array | None = None
    rescued: pa.Array | None = None


class Undecodable(Exception):
    """The chunk as a whole cannot be read; the message is a sentence for people."""


def missing(column: Column, is_key: bool, rows: Rows) -> RowFault:
    """The fault of rows that have no value where there must be one."""
    if is_key:
        return same(rows, column.name, "primary_key", "is part of the primary key and has no value")
    return same(rows, column.name, "required", "is required and has no value")


def long_keys(column: Column, values: pa.Array) -> list[RowFault]:
    """Key cells that are too long to be looked up."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)) or not len(values):
        return []
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) <= MAX_KEY_BYTES:
        return []
    rows = indices(pc.greater(lengths, MAX_KEY_BYTES).fill_null(False))
    message = f"is longer than the {MAX_KEY_BYTES} bytes a primary key may have"
    return [same(rows, column.name, "key_length", message, lossy(values.take(pa.array(rows))))]


def slices(body: bytes, starts: Rows, ends: Rows, rows: Rows) -> pa.Array:
    """The bytes of some rows, copied once: every second entry of an array of rows and the gaps between them."""
    bounds = np.empty(len(starts) * 2, np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    entries = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    return entries.take(pa.array(rows * 2))
