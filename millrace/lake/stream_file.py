"""Any number of rows in, batch by batch; one data file and its key sidecar out. Only a row group and the keys are in memory.
If a key occurs twice, both rows are written and the losing position is returned.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.lake.conform import versions_of
from millrace.lake.key_format import write_keys
from millrace.lake.keyhash import hash_keys
from millrace.lake.keys import sidecar_name
from millrace.lake.schema import VERSION_COLUMN
from millrace.lake.sidecar import DICTIONARY_REPEATS, StagedFile, all_keys, sorted_keys
from millrace.lake.statistics import file_statistics, finite_columns
from millrace.lake.store import Store

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 32 << 20

Lanes = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


def stream_data_file(
    store: Store, schema: pa.Schema, batches: Iterable[pa.Table], key: Sequence[str], name_prefix: str
) -> tuple[StagedFile, npt.NDArray[np.uint32]]:
    """The file, packed tightly, and the positions of rows that lose against another row of the same key."""
    # The bytes are not known in advance, so the name cannot follow from them.
    path = f"{name_prefix}-{uuid.uuid4().hex}.parquet"
    lanes: list[Lanes] = []
    versions: list[pa.ChunkedArray] = []
    rows, beaten, sidecar = 0, np.empty(0, dtype=np.uint32), None
    footers: list[pq.FileMetaData] = []
    finite = frozenset(schema.names)
    with store.creating(path) as file:
        groups = row_groups(batches, schema)
        first = next(groups)
        options = {"compression": "zstd", "use_dictionary": _repeating_columns(first), "store_schema": False}
        options["write_page_checksum"] = True
        with pq.ParquetWriter(file, schema, **options, metadata_collector=footers) as writer:
            for group in chain([first], groups):
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                rows += group.num_rows
                finite &= finite_columns(group)
                if key:
                    lanes.append(hash_keys([group[column] for column in key]))
                    versions.append(group[VERSION_COLUMN])
        size = file.tell()
        if key:
            sidecar = sidecar_name(path)
            joined = np.concatenate([h1 for h1, _ in lanes]), np.concatenate([h2 for _, h2 in lanes])
            cells = pa.chunked_array([part for cells in versions for part in cells.chunks])
            keys, losing = sorted_keys(joined, cells)
            beaten = losing.astype(np.uint32)
            if len(beaten):
                # They are in the file, so they must be found, unless whoever calls deletes them.
                keys = all_keys(joined, versions_of(cells))
            write_keys(store, sidecar, replace(keys, files=(path,)), filtered=True)
    stats = file_statistics(footers[0], finite) if store.may_tell(path) else None
    return StagedFile(path, size, rows, sidecar, stats=stats), beaten


def row_groups(batches: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches that are large enough for a row group each. At least one, which may be empty."""
    pending, rows, size = [schema.empty_table()], 0, 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _repeating_columns(group: pa.Table) -> list[str]:
    """The columns whose values repeat enough for a dictionary."""
    flat = [field.name for field in group.schema if not pa.types.is_nested(field.type)]
    return [name for name in flat if DICTIONARY_REPEATS * pc.count_distinct(group[name]).as_py() <= group.num_rows]
