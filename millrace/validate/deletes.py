"""Which rows of a chunk delete their key: the chunk's header or the rows' own marks in, a flag for each row out.

Of a row that deletes only the key matters: its other columns have no faults. In a table without a key such a row is
rejected."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.model.columns import DELETED_COLUMN
from millrace.validate.faults import RowFault, Rows, indices, lossy, same
from millrace.validate.parsed import Parsed

Flags = npt.NDArray[np.bool_]

_TRUE = pa.array(["true", "t", "1"])
_FALSE = pa.array(["false", "f", "0", ""])
_ANY_COLUMN = "unknown_field"


def sort_out(parsed: Parsed, keys: tuple[str, ...], *, all_delete: bool) -> tuple[list[RowFault], Flags | None]:
    """The faults that count, and which entries delete their key (None: no entry)."""
    deleted, strange = _deletes_of(parsed, all_delete)
    faults = parsed.faults + strange
    if deleted is None or not deleted.any():
        return faults, None
    rows = np.flatnonzero(deleted) if parsed.positions is None else parsed.positions[deleted]
    faults = _about_keys(faults, keys, rows, parsed.rows)
    if not keys:
        faults.append(same(rows, None, "no_key", "deletes a row of a table that has no primary key"))
        return faults, None
    return faults, deleted


def _deletes_of(parsed: Parsed, all_delete: bool) -> tuple[Flags | None, list[RowFault]]:
    if all_delete:
        return np.ones(parsed.rows if parsed.positions is None else len(parsed.positions), np.bool_), []
    if parsed.marks is None:
        return None, []
    deleted, faults = _read_marks(parsed.marks)
    return deleted, [fault.at(parsed.positions) for fault in faults]


def _read_marks(text: pa.Array) -> tuple[Flags, list[RowFault]]:
    """Folds and trims ASCII only, so the text need not be valid."""
    plain = pc.ascii_lower(pc.ascii_trim(text, " \t"))
    deleted = pc.is_in(plain, _TRUE)
    strange = indices(pc.and_(pc.is_valid(plain), pc.invert(pc.or_(deleted, pc.is_in(plain, _FALSE)))))
    faults = []
    if len(strange):
        cells = lossy(text.view(pa.binary()).take(pa.array(strange)))
        faults = [same(strange, DELETED_COLUMN, "type", "is not true or false (t, f, 1, 0)", cells)]
    return deleted.to_numpy(zero_copy_only=False), faults


def _about_keys(faults: list[RowFault], keys: tuple[str, ...], deleted: Rows, rows: int) -> list[RowFault]:
    """The faults without those in other columns than the key of rows that delete."""
    is_deleted = np.zeros(rows, np.bool_)
    is_deleted[deleted] = True
    kept = []
    for fault in faults:
        if fault.rule != _ANY_COLUMN and (fault.column is None or fault.column in keys):
            kept.append(fault)
            continue
        others = np.flatnonzero(~is_deleted[fault.rows])
        if len(others):
            kept.append(fault.only(others))
    return kept
