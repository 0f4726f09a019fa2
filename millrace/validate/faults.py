"""Faults of cells, kept as columns: many bad cells in, one list of reasons per row out, without a loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.errors_table import REASON

MAX_VALUE = 200
MAX_SHOWN = 80

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowFault:
    """One rule that many rows break in one column. `messages` and `values` have one entry per row of `rows`."""

    rows: Rows
    column: str | None
    rule: str
    messages: pa.Array
    values: pa.Array

    def at(self, positions: Rows | None) -> "RowFault":
        """The same fault with its rows renumbered by `positions`."""
        if positions is None:
            return self
        return replace(self, rows=positions[self.rows])

    def only(self, entries: Rows) -> "RowFault":
        """The same fault for some of its rows. The argument holds positions in `rows`."""
        picks = pa.array(entries)
        return RowFault(self.rows[entries], self.column, self.rule, self.messages.take(picks), self.values.take(picks))


def indices(mask: pa.Array) -> Rows:
    """The positions where a boolean Arrow array is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def same(rows: Rows, column: str | None, rule: str, message: str, values: pa.Array | None = None) -> RowFault:
    """A fault whose message is the same for every row."""
    known = pa.nulls(len(rows), pa.string()) if values is None else clipped(values, MAX_VALUE)
    return RowFault(rows, column, rule, pa.repeat(pa.scalar(message), len(rows)), known)


def worded(rows: Rows, column: str, rule: str, before: str, text: pa.Array, after: str) -> RowFault:
    """A fault whose message shows the cell's text between `before` and `after`."""
    messages = pc.binary_join_element_wise(before, shown(text), after, "")
    return RowFault(rows, column, rule, messages, clipped(text, MAX_VALUE))


class CellFault(NamedTuple):
    """One fault of one row."""

    row: int
    column: str | None
    rule: str
    message: str
    value: str | None


def listed(found: list[CellFault]) -> list[RowFault]:
    """Single faults, gathered by column and rule."""
    groups: dict[tuple[str | None, str], list[CellFault]] = {}
    for fault in found:
        groups.setdefault((fault.column, fault.rule), []).append(fault)
    return [_gathered(column, rule, group) for (column, rule), group in groups.items()]


def _gathered(column: str | None, rule: str, group: list[CellFault]) -> RowFault:
    rows = np.array([fault.row for fault in group], np.int64)
    messages = pa.array([fault.message for fault in group], pa.string())
    values = pa.array([fault.value for fault in group], pa.string())
    return RowFault(rows, column, rule, messages, clipped(values, MAX_VALUE))


def blanked(cells: pa.Array, rows: Rows) -> pa.Array:
    """The cells with null in the given rows."""
    mask = np.zeros(len(cells), np.bool_)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, cells.type), cells)


def clipped(text: pa.Array, length: int) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, length)


def lossy(cells: pa.Array) -> pa.Array:
    """The beginning of each cell as text, whatever its bytes are."""
    if pa.types.is_string(cells.type):
        return clipped(cells, MAX_VALUE)
    starts = pc.binary_slice(cells, 0, MAX_VALUE * 4).to_pylist()
    return pa.array([None if start is None else start.decode("utf-8", "replace") for start in starts], pa.string())


def shown(text: pa.Array) -> pa.Array:
    """Text short enough for a sentence."""
    if len(text) == 0 or pc.max(pc.binary_length(text)).as_py() <= MAX_SHOWN:
        return text
    short = pc.binary_join_element_wise(clipped(text, MAX_SHOWN), "…", "")
    return pc.if_else(pc.greater(pc.utf8_length(text), MAX_SHOWN), short, text)


def reasons_by_row(faults: Sequence[RowFault]) -> tuple[Rows, pa.ListArray]:
    """The rows with faults in order, and for each row the list of its reasons, in the order of the faults."""
    rows = np.concatenate([fault.rows for fault in faults])
    order = np.argsort(rows, kind="stable")
    faulty, starts = np.unique(rows[order], return_index=True)
    sizes = [len(fault.rows) for fault in faults]
    columns = pa.array([fault.column for fault in faults], pa.string())
    rules = pa.array([fault.rule for fault in faults], pa.string())
    which = np.repeat(np.arange(len(faults)), sizes)[order]
    picks = pa.array(order)
    fields = [
        columns.take(pa.array(which)),
        rules.take(pa.array(which)),
        pa.concat_arrays([fault.messages.cast(pa.string()) for fault in faults]).take(picks),
        pa.concat_arrays([fault.values.cast(pa.string()) for fault in faults]).take(picks),
    ]
    offsets = pa.array(np.append(starts, len(rows)).astype(np.int32))
    return faulty, pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(REASON)))
