"""The sidecar of a data file from its rows: for files of other engines, and where a sidecar was lost. Only hashes and
versions are in memory. It has every row, because another engine may write a key twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millrace.lake.actions import AddFile, Metadata
from millrace.lake.apart import rows_apart
from millrace.lake.bounds import too_large
from millrace.lake.conform import conformed, present, versions_of
from millrace.lake.data_files import data_file, group_batches, refuse_other_count
from millrace.lake.key_format import write_keys
from millrace.lake.keyhash import hash_keys
from millrace.lake.keys import KeyFile, sidecar_name
from millrace.lake.schema import SYSTEM_COLUMNS, VERSION_COLUMN, arrow_schema
from millrace.lake.sidecar import all_keys
from millrace.lake.store import Store


def make_sidecar(store: Store, file: AddFile, key: Sequence[str], table: Metadata | None = None) -> KeyFile:
    """Writes the sidecar. `table` says the types of the key; without it the file does, which then is one of ours."""
    lanes, versions, rows = [], [], 0
    for part in _rows(store, file, key, table):
        lanes.append(hash_keys([part[column] for column in key]))
        versions.append(versions_of(part[VERSION_COLUMN]))
        rows += part.num_rows
        if rows > store.bounds.file_rows:
            raise too_large(store.where, file.name, f"has more than {store.bounds.file_rows} rows")
    refuse_other_count(store, file, rows)
    none = np.empty(0, dtype=np.uint64)
    h1, h2 = (np.concatenate([none, *(pair[lane] for pair in lanes)]) for lane in (0, 1))
    version = np.concatenate([np.empty(0, dtype=np.int64), *versions])
    keys = replace(all_keys((h1, h2), version), files=(file.path,))
    write_keys(store, sidecar_name(file.name), keys, filtered=True)
    return keys


def _rows(store: Store, file: AddFile, key: Sequence[str], table: Metadata | None) -> Iterator[pa.Table]:
    """The key and the version of every row, also of deleted ones: positions count them."""
    declared = None if table is None else arrow_schema(table.schema_json)
    if store.bounds.rows_apart:
        for batch in rows_apart(store, file.name, [*key, VERSION_COLUMN]):
            schema = _columns(key, declared or batch.schema)
            yield conformed(pa.Table.from_batches([batch]), schema, store.where, file.name)
        return
    with data_file(store, file) as parquet:
        stored = parquet.schema_arrow
        schema = _columns(key, declared or stored)
        for number in range(parquet.metadata.num_row_groups):
            for rows in group_batches(parquet, number, present(stored, schema.names)):
                yield conformed(rows, schema, store.where, file.name)


def _columns(key: Sequence[str], declared: pa.Schema) -> pa.Schema:
    version = next(field for field in SYSTEM_COLUMNS if field.name == VERSION_COLUMN)
    return pa.schema([*(declared.field(column) for column in key), version])
