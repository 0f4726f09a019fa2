"""A version in, the positions of all live rows at or below it out. Reads footers, and rows only if a file holds both older
and newer rows.
"""

import numpy as np
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile
from millrace.lake.decide import Dead, dead_positions
from millrace.lake.log import Snapshot
from millrace.lake.schema import VERSION_COLUMN
from millrace.lake.store import Store


def rows_up_to(store: Store, snapshot: Snapshot, version: int) -> dict[str, Dead]:
    """The positions by path, without files that have none."""
    found = {path: _positions(store, file, version) for path, file in snapshot.files.items()}
    alive = {path: _alive(store, snapshot.files[path], positions) for path, positions in found.items()}
    return {path: positions for path, positions in alive.items() if len(positions)}


def _alive(store: Store, file: AddFile, positions: Dead) -> Dead:
    if file.deletion_vector is None:
        return positions
    return np.setdiff1d(positions, np.asarray(dead_positions(store, file).to_array()), assume_unique=True)


def _positions(store: Store, file: AddFile, version: int) -> Dead:
    with pq.ParquetFile(store.source(file.name), memory_map=True) as parquet:
        oldest, newest = _range(parquet)
        if newest is not None and newest <= version:
            return np.arange(parquet.metadata.num_rows, dtype=np.uint32)
        if oldest is not None and oldest > version:
            return np.empty(0, dtype=np.uint32)
        versions = parquet.read([VERSION_COLUMN])[VERSION_COLUMN].to_numpy()
    return np.flatnonzero(versions <= version).astype(np.uint32)


def _range(parquet: pq.ParquetFile) -> tuple[int | None, int | None]:
    """The least and the greatest version in a file; None if its footer has no statistics."""
    metadata = parquet.metadata
    column = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == VERSION_COLUMN)
    groups = [metadata.row_group(n).column(column).statistics for n in range(metadata.num_row_groups)]
    if not groups or any(stats is None or not stats.has_min_max for stats in groups):
        return None, None
    return min(stats.min for stats in groups), max(stats.max for stats in groups)
