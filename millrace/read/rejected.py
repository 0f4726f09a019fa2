"""Reads an import's rejected rows from the error store in the order of the user's file: by chunk, then by row.

A file may interleave chunks, hold them in any order and, after compaction, hold several imports. The chunk column decides.
Only files for the next rows are open, so memory does not grow with the number of rows."""

import heapq
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.log import load
from millrace.lake.store import Store

SHOWN_COLUMNS = ["row", "line", "raw", "reasons"]
MOST_OPEN_FILES = 16
# Limit for unsealed files in memory.
MOST_HELD_BYTES = 128 << 20
BATCH_BYTES = 4 << 20
MOST_BATCH_ROWS = 4096
# Encoded sizes do not show repeated values. All rows of a chunk together are small, so this few rows are small too.
FEW_ROWS = 64
MOST_REASONS = 20_000

_IMPORT_PREFIX = re.compile(r"imp_[0-9a-z]{26}-")

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class RowPlace:
    """The place of a rejected row in its import."""

    chunk: int
    row: int


BEGINNING = RowPlace(-1, -1)


@dataclass(frozen=True, slots=True)
class RejectedBatch:
    """Some rejected rows of one chunk, in order, with the columns SHOWN_COLUMNS."""

    chunk: int
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True, order=True)
class _Run:
    """Consecutive rows of one chunk in one file."""

    first: RowPlace
    name: str
    positions: Positions = field(compare=False)


def rejected_rows(store: Store, import_id: str, after: RowPlace = BEGINNING) -> Iterator[RejectedBatch]:
    """The rejected rows behind a place, as the error store holds them now."""
    files = {file.name: file for file in load(store).files.values() if _may_hold(file, import_id)}
    spans = {name: _chunk_span(store, name, import_id) for name in files}
    waiting = sorted((span[0], name) for name, span in spans.items() if span is not None and span[1] >= after.chunk)
    waiting.reverse()
    readers = _Readers(store)
    runs: list[_Run] = []
    while waiting or runs:
        # A run is ready when no unread file can hold an earlier chunk.
        while waiting and (not runs or waiting[-1][0] <= runs[0].first.chunk):
            _, name = waiting.pop()
            for run in _runs(store, files[name], import_id, after):
                heapq.heappush(runs, run)
        if runs:
            run = heapq.heappop(runs)
            for rows in readers.read(run.name, run.positions):
                yield from (RejectedBatch(run.first.chunk, piece) for piece in _in_pieces(rows))


def rejected_numbers(store: Store, import_id: str) -> Positions:
    """The number of each rejected row, rising. A row that two sinks refused is there twice."""
    found = [np.zeros(0, np.int64)]
    for file in load(store).files.values():
        if _may_hold(file, import_id) and _chunk_span(store, file.name, import_id) is not None:
            found.append(_wanted_rows(store, file, import_id, BEGINNING)[2])
    return np.sort(np.concatenate(found))


def _may_hold(file: AddFile, import_id: str) -> bool:
    """A file is named by its import, unless compaction joined several imports."""
    return file.name.startswith(f"{import_id}-") or _IMPORT_PREFIX.match(file.name) is None


def _chunk_span(store: Store, name: str, import_id: str) -> tuple[int, int] | None:
    """The first and the last chunk in a file; None if the file does not hold the import."""
    groups = [group for group in _row_groups(store, name) if group.first_import <= import_id <= group.last_import]
    if not groups:
        return None
    return min(group.first_chunk for group in groups), max(group.last_chunk for group in groups)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """The range in a footer's statistics; the widest range if there are none."""

    first_import: str = ""
    last_import: str = "~"
    first_chunk: int = 0
    last_chunk: int = np.iinfo(np.int32).max


# Cached per file, not per file and import: a sealed file must be opened completely for it. Files never change.
@lru_cache(maxsize=1 << 14)
def _row_groups(store: Store, name: str) -> tuple[_RowGroup, ...]:
    footer = pq.read_metadata(store.source(name), memory_map=True)
    columns = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
    return tuple(_row_group(footer.row_group(index), columns) for index in range(footer.num_row_groups))


def _row_group(group: Any, columns: dict[str, int]) -> _RowGroup:
    known: dict[str, Any] = {}
    for column, first, last in (("_import", "first_import", "last_import"), ("chunk", "first_chunk", "last_chunk")):
        found = group.column(columns[column]).statistics
        if found is not None and found.has_min_max:
            known |= {first: found.min, last: found.max}
    return _RowGroup(**known)


def _wanted_rows(
    store: Store, file: AddFile, import_id: str, after: RowPlace
) -> tuple[Positions, Positions, Positions]:
    """The positions of the import's rows behind a place, with their chunks and numbers."""
    is_compacted = not file.name.startswith(f"{import_id}-")
    with pq.ParquetFile(store.source(file.name), memory_map=True) as parquet:
        keys = parquet.read(["chunk", "row", "_import"] if is_compacted else ["chunk", "row"], use_threads=False)
    chunk, row = _integers(keys["chunk"]), _integers(keys["row"])
    wanted = (chunk > after.chunk) | ((chunk == after.chunk) & (row > after.row))
    if is_compacted:
        wanted &= np.asarray(pc.equal(keys["_import"], import_id))
    if file.deletion_vector is not None:
        wanted[np.asarray(load_vector(store, file.deletion_vector).to_array())] = False
    positions = np.flatnonzero(wanted)
    return positions, chunk[positions], row[positions]


def _runs(store: Store, file: AddFile, import_id: str, after: RowPlace) -> Iterable[_Run]:
    positions, chunk, row = _wanted_rows(store, file, import_id, after)
    cuts = np.flatnonzero(chunk[1:] != chunk[:-1]) + 1
    for part in np.split(np.arange(len(positions)), cuts):
        if len(part):
            yield _Run(RowPlace(int(chunk[part[0]]), int(row[part[0]])), file.name, positions[part])


def _integers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    # to_numpy and pa.array import pandas, which would take most of the first page's time.
    return np.from_dlpack(column.combine_chunks())


def _as_arrow(positions: Positions) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions)])


def _in_pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Limits batches by reasons too: a few wide rows may have more reasons than many narrow ones."""
    reasons = np.from_dlpack(rows["reasons"].offsets)
    start = 0
    while start < rows.num_rows:
        stop = max(start + 1, int(np.searchsorted(reasons, reasons[start] + MOST_REASONS, side="right")) - 1)
        yield rows.slice(start, stop - start)
        start = stop


class _Readers:
    """Reads rows at rising positions of several files in turn. In each file it continues where it stopped."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[str, _Reader] = OrderedDict()

    def read(self, name: str, positions: Positions) -> Iterator[pa.RecordBatch]:
        reader = self._open.pop(name, None)
        if reader is None or reader.start > positions[0]:
            reader = _Reader(self._store, name, int(positions[0]), len(positions))
        self._open[name] = reader
        self._close_some()
        yield from reader.read(positions)
        if positions[-1] + 1 == reader.rows:
            self._open.pop(name, None)

    def _close_some(self) -> None:
        held = sum(reader.held_bytes for reader in self._open.values())
        while len(self._open) > MOST_OPEN_FILES or (held > MOST_HELD_BYTES and len(self._open) > 1):
            held -= self._open.popitem(last=False)[1].held_bytes


class _Reader:
    """A file's rows in batches of bounded size. `start` is the first position that is still available."""

    def __init__(self, store: Store, name: str, position: int, chunk_rows: int) -> None:
        source = store.source(name)
        self.held_bytes = 0 if isinstance(source, str) else source.seek(0, os.SEEK_END)
        parquet = pq.ParquetFile(source, memory_map=True)
        groups = [parquet.metadata.row_group(index) for index in range(parquet.metadata.num_row_groups)]
        starts = np.cumsum([0, *(group.num_rows for group in groups)])
        first = int(np.searchsorted(starts, position, side="right")) - 1
        row_bytes = max(1, *(group.total_byte_size // max(1, group.num_rows) for group in groups))
        most_rows = min(MOST_BATCH_ROWS, max(FEW_ROWS, chunk_rows))
        self.rows = int(starts[-1])
        self.start = int(starts[first])
        self._batch: pa.RecordBatch | None = None
        self._batches = parquet.iter_batches(
            batch_size=int(np.clip(BATCH_BYTES // row_bytes, 1, most_rows)),
            row_groups=range(first, len(groups)),
            columns=SHOWN_COLUMNS,
            use_threads=False,
        )

    def read(self, positions: Positions) -> Iterator[pa.RecordBatch]:
        while len(positions):
            if self._batch is None:
                self._batch = next(self._batches)
            end = self.start + self._batch.num_rows
            here = int(np.searchsorted(positions, end))
            if here:
                yield self._batch.take(_as_arrow(positions[:here] - self.start))
                positions = positions[here:]
            if len(positions):
                self.start, self._batch = end, None
