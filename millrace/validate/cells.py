"""Cells as bytes in, a column's typed values out. Text that is not UTF-8 or holds a NUL becomes a fault first."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.model.columns import Column
from millrace.validate.faults import CellFault, RowFault, blanked, indices, listed, lossy, same
from millrace.validate.json_values import Misfit, as_text, fit
from millrace.validate.text import Outcome, typed_text

_NESTED = ("record", "array", "map")


def is_nested(column: Column) -> bool:
    return column.kind in _NESTED


def holds_bytes(column: Column) -> bool:
    """Whether the column takes any bytes, not only text."""
    return column.kind in ("bytes", "fixed") and column.logical is None


def is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def typed_cells(column: Column, cells: pa.Array, *, clean: bool, has_nul: bool) -> Outcome:
    """Binary cells as the column's type. `clean`: all are known to be UTF-8; `has_nul`: some may hold a NUL."""
    faults: list[RowFault] = []
    if not holds_bytes(column):
        if not clean:
            cells, found = without_broken_text(column, cells)
            faults += found
        if has_nul:
            cells, found = without_nul(column, cells)
            faults += found
    text = cells.view(pa.string())
    if is_nested(column):
        values, found = one_by_one(column, text.to_pylist(), lambda cell: fit(column.avro, _json(cell)))
    else:
        values, found = typed_text(column, text)
    return values, faults + found


def without_broken_text(column: Column, cells: pa.Array) -> Outcome:
    """Binary cells; those that are not UTF-8 become null and a fault. Only cells beyond ASCII are checked one by one."""
    beyond = indices(pc.invert(pc.string_is_ascii(cells.view(pa.string()))).fill_null(False))
    suspects = cells.take(pa.array(beyond)).to_pylist()
    broken = beyond[np.array([not is_utf8(cell) for cell in suspects], np.bool_)]
    if not len(broken):
        return cells, []
    fault = same(broken, column.name, "utf8", "is not valid UTF-8", lossy(cells.take(pa.array(broken))))
    return blanked(cells, broken), [fault]


def without_nul(column: Column, cells: pa.Array) -> Outcome:
    """Text or binary cells with a NUL become null and a fault: some sinks cannot store a NUL."""
    found = indices(pc.match_substring(cells, "\0").fill_null(False))
    if not len(found):
        return cells, []
    fault = same(found, column.name, "nul", "contains a NUL character", lossy(cells.take(pa.array(found))))
    return blanked(cells, found), [fault]


def _json(cell: str) -> object:
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        raise Misfit("json", f"is not valid JSON: {error}") from error


def one_by_one(column: Column, given: Sequence[Any], read: Callable[[Any], object]) -> Outcome:
    """Values of a type that is nested too deep to be read as a column: each is read on its own."""
    values: list[object] = []
    bad: list[CellFault] = []
    for row, value in enumerate(given):
        try:
            values.append(None if value is None else read(value))
        except Misfit as misfit:
            values.append(None)
            bad.append(CellFault(row, column.name, misfit.rule, misfit.message, as_text(value)))
    return pa.array(values, arrow_type(column)), listed(bad)
