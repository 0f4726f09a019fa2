"""What each format's parser gets from the judge and returns to it: the wanted columns in; typed columns, faults, and a
function for the original bytes of rows out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.arrow.types import arrow_type
from millrace.formats.matching import readable_columns
from millrace.model.chunk import ChunkHeader
from millrace.model.columns import Column
from millrace.model.defaults import stored_default
from millrace.model.fields import bare
from millrace.model.table import REJECT_HEADER, Definition
from millrace.validate.faults import RowFault, Rows, indices, lossy, same
from millrace.validate.text import Outcome

MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """`unknown`: what happens to other columns: reject, ignore or rescue. `marked`: rows may mark that they delete.
    `rejects_headers`: a row that repeats the file's header is rejected."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    unknown: str
    marked: bool
    rejects_headers: bool = False

    @property
    def rescues(self) -> bool:
        return self.unknown == "rescue"


def reading_of(header: ChunkHeader, definition: Definition) -> Reading:
    columns = readable_columns(definition, deletes=header.deletes)
    # A declaration may wrap types needlessly. Parsers expect them without.
    if any(bare(column.avro) is not column.avro for column in columns):
        columns = tuple(replace(column, avro=bare(column.avro)) for column in columns)
    unknown = "ignore" if header.deletes else definition.table.unknown_fields
    rejects_headers = definition.table.csv.repeated_header == REJECT_HEADER
    return Reading(columns, definition.table.primary_key, unknown, not header.deletes, rejects_headers)


@dataclass(frozen=True, slots=True)
class Originals:
    """The original bytes of some rows, and the number of lines between each row and the chunk's first (None: no lines)."""

    raw: pa.Array
    lines: Rows | None


@dataclass(frozen=True, slots=True)
class Parsed:
    """`columns` are the wanted columns, all of one length. `positions` is the chunk's row of each entry (None: all in order).

    `faults` name rows of the chunk. `originals` returns the original bytes of given rows. `marks` and `rescued` have one
    entry per entry of the columns: the text that marks a delete, and the unknown fields; None if not wanted. `repeats` are
    the rows of the chunk that repeat the file's header."""

    columns: list[pa.Array]
    positions: Rows | None
    faults: list[RowFault]
    rows: int
    originals: Callable[[Rows], Originals]
    marks: pa.Array | None = None
    rescued: pa.Array | None = None
    repeats: Rows | None = None


class Undecodable(Exception):
    """The chunk as a whole cannot be read. The message is for people."""


def missing(column: Column, is_key: bool, rows: Rows) -> RowFault:
    """The fault of rows without a required value."""
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
    """The bytes of some rows, copied once. The array alternates rows and gaps between them: every second entry is a row."""
    bounds = np.empty(len(starts) * 2, np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    entries = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(body)])
    return entries.take(pa.array(rows * 2))


def typed_columns(
    reading: Reading, names: Mapping[str, str], rows: int, typed: Callable[[Column, bool, str], Outcome]
) -> tuple[list[pa.Array], list[RowFault]]:
    """The wanted columns. `names`: the name in the file of each column that the file has; `typed` reads such a column."""
    columns, faults = [], []
    for column in reading.columns:
        is_key, name = column.name in reading.keys, names.get(column.name)
        values, found = _absent_column(column, is_key, rows) if name is None else typed(column, is_key, name)
        columns.append(values)
        faults += found
    return columns, faults


def _absent_column(column: Column, is_key: bool, rows: int) -> Outcome:
    """The values of a column that the file does not have: its default, else null, else a fault in each row."""
    value = stored_default(column)
    if value is not None:
        return pa.array([value], arrow_type(column)).take(pa.array(np.zeros(rows, np.int64))), []
    empty = pa.nulls(rows, arrow_type(column))
    if rows and (is_key or not column.nullable):
        return empty, [missing(column, is_key, np.arange(rows, dtype=np.int64))]
    return empty, []
