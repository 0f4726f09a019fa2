"""A snapshot in, its live rows out: as file paths with deleted positions for other engines, as Arrow tables, or, for those up
to a version, as positions. For small reads, compaction and truncation. Large queries use an engine.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.lake.actions import AddFile, DeletionVector
from millrace.lake.apart import rows_apart
from millrace.lake.bounds import too_large
from millrace.lake.conform import UNVERSIONED, conformed, present, versions_of
from millrace.lake.data_files import data_file, group_batches, refuse_marks_behind, refuse_other_count
from millrace.lake.deletion_vectors import dead_positions, load_vector
from millrace.lake.log import Snapshot
from millrace.lake.schema import SYSTEM_COLUMNS, VERSION_COLUMN, arrow_schema
from millrace.lake.store import Store

# Of one file that another engine may have written.
MOST_TABLE_BYTES = 512 << 20

Positions = npt.NDArray[np.uint32]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file at an absolute path."""

    path: str
    rows: int
    store: Store
    vector: DeletionVector | None

    @property
    def dead(self) -> Positions | None:
        """The positions of its deleted rows in order, if there are any. They are read each time: all files together may have
        many."""
        return None if self.vector is None else np.asarray(load_vector(self.store, self.vector).to_array())


def live_files(store: Store, snapshot: Snapshot, files: Collection[AddFile] | None = None) -> list[LiveFile]:
    """Every data file of the snapshot, or only some of them."""
    files = snapshot.files.values() if files is None else files
    store.prefetch([file.name for file in files])
    return [LiveFile(store.local(file.name), file.rows, store, file.deletion_vector) for file in files]


def scan(store: Store, snapshot: Snapshot, columns: Sequence[str] | None = None) -> pa.Table:
    """All live rows. A file that is older than a column has null there."""
    schema = _projected(snapshot, columns)
    return pa.concat_tables([*scan_files(store, snapshot, columns), schema.empty_table()])


def scan_files(store: Store, snapshot: Snapshot, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The live rows, file by file."""
    for file in snapshot.files.values():
        yield read_in_shape(store, snapshot, file, dead_positions(store, file), columns)


def read_in_shape(
    store: Store, snapshot: Snapshot, file: AddFile, dead: BitMap, columns: Sequence[str] | None = None
) -> pa.Table:
    """The live rows of one file, with the snapshot's columns and types."""
    schema = _projected(snapshot, columns)
    if store.bounds.rows_apart:
        return _bounded_table(store, file, dead, schema)
    # Only parts of the file are read. So a remote file need not be fetched completely.
    with data_file(store, file) as parquet:
        is_live = _is_live(store, file, parquet.metadata.num_rows, dead)
        table = parquet.read(present(parquet.schema_arrow, schema.names))
    # Arrow cannot filter all types that files may have.
    rows = conformed(table, schema, store.where, file.name)
    return rows.filter(pa.array(is_live)) if dead else rows


def read_live_groups(store: Store, file: AddFile, dead: BitMap, schema: pa.Schema) -> Iterator[pa.Table]:
    """The live rows of one file in the shape of `schema`, row group by row group."""
    if store.bounds.rows_apart:
        yield from _live_pieces(store, file, dead, schema)
        return
    with data_file(store, file, whole=True) as parquet:
        yield from _groups(store, file, parquet, _is_live(store, file, parquet.metadata.num_rows, dead), schema)


def read_marked_groups(store: Store, file: AddFile, marked: Marks, schema: pa.Schema) -> Iterator[pa.Table]:
    """Some rows of one file, in order, row group by row group. There is a mark for each row."""
    if store.bounds.rows_apart:
        yield from _live_pieces(store, file, BitMap(np.flatnonzero(~marked)), schema)
        return
    with data_file(store, file, whole=True) as parquet:
        yield from _groups(store, file, parquet, marked, schema)


def _groups(
    store: Store, file: AddFile, parquet: pq.ParquetFile, marked: Marks, schema: pa.Schema
) -> Iterator[pa.Table]:
    """Decodes only groups with a marked row."""
    columns, start = present(parquet.schema_arrow, schema.names), 0
    for number in range(parquet.metadata.num_row_groups):
        end = start + parquet.metadata.row_group(number).num_rows
        if marked[start:end].any():
            for rows in group_batches(parquet, number, columns):
                here, start = marked[start : start + rows.num_rows], start + rows.num_rows
                if here.any():
                    yield conformed(rows, schema, store.where, file.name).filter(pa.array(here))
        start = end


def _live_pieces(store: Store, file: AddFile, dead: BitMap, schema: pa.Schema) -> Iterator[pa.Table]:
    gone, start = np.asarray(dead.to_array()), 0
    for batch in rows_apart(store, file.name, schema.names):
        first, end = np.searchsorted(gone, [start, start + batch.num_rows])
        is_live = np.ones(batch.num_rows, dtype=bool)
        is_live[gone[first:end] - start] = False
        start += batch.num_rows
        yield conformed(pa.Table.from_batches([batch]), schema, store.where, file.name).filter(pa.array(is_live))
    refuse_other_count(store, file, start)
    refuse_marks_behind(store, file, dead, start)


def _bounded_table(store: Store, file: AddFile, dead: BitMap, schema: pa.Schema) -> pa.Table:
    pieces, size = [], 0
    for piece in _live_pieces(store, file, dead, schema):
        pieces.append(piece)
        size += piece.nbytes
        if size > MOST_TABLE_BYTES:
            raise too_large(store.where, file.name, f"has more than {MOST_TABLE_BYTES >> 20} MiB of rows")
    return pa.concat_tables(pieces)


def _is_live(store: Store, file: AddFile, rows: int, dead: BitMap) -> Marks:
    refuse_marks_behind(store, file, dead, rows)
    is_live = np.ones(rows, dtype=bool)
    is_live[np.asarray(dead.to_array())] = False
    return is_live


def row_count(store: Store, file: AddFile) -> int:
    """The number of all rows of a file, also if its writer did not tell it."""
    if file.rows >= 0:
        return file.rows
    with data_file(store, file) as parquet:
        return int(parquet.metadata.num_rows)


def rows_up_to(store: Store, snapshot: Snapshot, version: int) -> dict[str, Positions]:
    """The positions of live rows at or below the version, by path. Reads footers, and rows only if a file holds both older
    and newer rows."""
    found = {path: _positions(store, file, version) for path, file in snapshot.files.items()}
    alive = {path: _alive(store, snapshot.files[path], positions) for path, positions in found.items()}
    return {path: positions for path, positions in alive.items() if len(positions)}


def _alive(store: Store, file: AddFile, positions: Positions) -> Positions:
    if file.deletion_vector is None:
        return positions
    return np.setdiff1d(positions, np.asarray(dead_positions(store, file).to_array()), assume_unique=True)


def _positions(store: Store, file: AddFile, version: int) -> Positions:
    schema = pa.schema([field for field in SYSTEM_COLUMNS if field.name == VERSION_COLUMN])
    if store.bounds.rows_apart:
        pieces = _live_pieces(store, file, BitMap(), schema)
        known = [versions_of(piece[VERSION_COLUMN]) for piece in pieces]
        return np.flatnonzero(np.concatenate(known) <= version).astype(np.uint32)
    with data_file(store, file) as parquet:
        oldest, newest = _range(parquet)
        if newest is not None and newest <= version:
            return np.arange(parquet.metadata.num_rows, dtype=np.uint32)
        if oldest is not None and oldest > version:
            return np.empty(0, dtype=np.uint32)
        rows = conformed(parquet.read(present(parquet.schema_arrow, schema.names)), schema, store.where, file.name)
    return np.flatnonzero(versions_of(rows[VERSION_COLUMN]) <= version).astype(np.uint32)


def _range(parquet: pq.ParquetFile) -> tuple[int | None, int | None]:
    """The least and the greatest version in a file; None if its footer has no statistics."""
    metadata = parquet.metadata
    columns = (n for n in range(metadata.num_columns) if metadata.schema.column(n).path == VERSION_COLUMN)
    column = next(columns, None)
    if column is None:
        return UNVERSIONED, UNVERSIONED
    groups = [metadata.row_group(n).column(column).statistics for n in range(metadata.num_row_groups)]
    if not groups or any(stats is None or not stats.has_min_max or stats.null_count != 0 for stats in groups):
        return None, None
    return min(stats.min for stats in groups), max(stats.max for stats in groups)


def _projected(snapshot: Snapshot, columns: Sequence[str] | None) -> pa.Schema:
    if snapshot.metadata is None:
        return pa.schema([])
    schema = arrow_schema(snapshot.metadata.schema_json)
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])
