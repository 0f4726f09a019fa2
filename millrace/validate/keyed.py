"""The primary keys of rows, accepted or not: chunks in, hashed keys out. Other columns are not read."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from millrace.lake.keyhash import hash_keys
from millrace.model.chunk import ChunkHeader
from millrace.model.formats import format_of_chunks, load
from millrace.model.table import Definition
from millrace.validate.parsed import Parsed, Undecodable, reading_of

Lane = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """`rows`: the places in the chunk of the rows whose key can be read; the lanes are their hashed keys."""

    rows: npt.NDArray[np.int64]
    first: Lane
    second: Lane


NO_KEYS = KeyedRows(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def keyed_rows(header: ChunkHeader, body: bytes, definition: Definition) -> KeyedRows | None:
    """None if the rows cannot be read together: a rejected row may hold a quote that never closes."""
    found = format_of_chunks(header.encoding)
    keys = definition.table.primary_key
    if found is None or not keys:
        return NO_KEYS
    reading = reading_of(header, definition)
    reading = replace(
        reading, columns=tuple(c for c in reading.columns if c.name in keys), unknown="ignore", marked=False
    )
    try:
        parsed: Parsed = load(found.parser)(header, body, reading)
    except Undecodable:
        return None
    if parsed.rows != header.rows:
        return None
    by_name = dict(zip((column.name for column in reading.columns), parsed.columns, strict=True))
    rows = np.arange(parsed.rows, dtype=np.int64) if parsed.positions is None else parsed.positions
    readable = np.ones(len(rows), bool)
    for column in parsed.columns:
        if column.null_count:
            readable &= np.asarray(column.is_valid())
    # A cell that is too long for a key has a value and a fault.
    faulty = [fault.rows for fault in parsed.faults if fault.column in keys]
    if faulty:
        readable &= ~np.isin(rows, np.concatenate(faulty))
    first, second = hash_keys([by_name[name] for name in keys])
    return KeyedRows(rows[readable], first[readable], second[readable])
