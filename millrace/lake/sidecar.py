"""A batch of accepted rows in, an immutable Parquet file and its key sidecar out, described by a StagedFile; rows that
delete their key become a tombstone file. Nothing is visible to readers until the table commits it. Refuses rows without
`_version`, deletes without a key and unsafe name prefixes.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.lake.conform import versions_of
from millrace.lake.key_format import write_keys
from millrace.lake.keyhash import Cells, hash_keys
from millrace.lake.keys import KeyFile, sidecar_name
from millrace.lake.schema import VERSION_COLUMN
from millrace.lake.statistics import file_statistics, finite_columns
from millrace.lake.store import Store
from millrace.lake.tombstones import write_tombstones
from millrace.model.columns import DELETED_COLUMN, ROW_COLUMN
from millrace.model.errors import Corrupt, Invalid

# Rows in the sample that decides whether a column's values repeat enough for a dictionary.
DICTIONARY_SAMPLE_ROWS = 4096
DICTIONARY_REPEATS = 4
# Below this size dictionaries cost more than they save.
SMALL_FILE_ROWS = 1000
ROW_GROUP_ROWS = 1 << 19

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-_]{0,99}")


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """The rows of one chunk in a staged file. `rows` counts the rows that remain after losing rows were left out."""

    chunk_id: str
    first_position: int
    rows: int
    version: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file that is complete on disk, and the keys that its chunks delete. `sidecar` is None for tables without a key.
    `path` is empty if there are only deletes. `deleted_keys` holds the rows of the deletes, for sinks without key hashes.
    `sealed_by` names the data key if the files are sealed, in a folder of their own. `is_aside`: they are in that folder
    because the table's folder did not take them. `stats` tells readers what its columns hold (`statistics.py`)."""

    path: str
    size: int
    rows: int
    sidecar: str | None
    chunks: tuple[StagedChunk, ...] = ()
    tombstones: str | None = None
    deleted_rows: int = 0
    deleted_keys: str | None = None
    sealed_by: str | None = None
    is_aside: bool = False
    stats: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all its files. What a data file needs comes before it."""
        return tuple(part for part in (self.sidecar, self.tombstones, self.deleted_keys, self.path) if part)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "StagedFile":
        chunks = tuple(StagedChunk(**chunk) for chunk in value["chunks"])
        return cls(**{**value, "chunks": chunks})


def write_data_file(
    store: Store,
    table: pa.Table,
    key: Sequence[str],
    name_prefix: str,
    chunks: Sequence[StagedChunk] = (),
) -> StagedFile:
    """Stages the rows. If a key occurs twice, only the row of the greatest version, or else the last row, is written. A row
    whose `_deleted` is true is written as a tombstone."""
    _refuse_unless_stageable(table, key, name_prefix)
    if not key:
        rows = table.drop_columns([DELETED_COLUMN]) if DELETED_COLUMN in table.column_names else table
        return _write_rows(store, rows, None, name_prefix, chunks)
    keys, beaten = sorted_keys(hash_keys([table[column] for column in key]), table[VERSION_COLUMN])
    tombstones, deleted_rows, deleted_keys = None, 0, None
    if DELETED_COLUMN in table.column_names:
        is_deleted = table[DELETED_COLUMN].fill_null(False).to_numpy()
        table = table.drop_columns([DELETED_COLUMN])
        is_deleted = is_deleted[keys.position]
        keys, deleted = keys.part(~is_deleted), keys.part(is_deleted)
        beaten, deleted_rows = np.concatenate([beaten, deleted.position]), len(deleted)
        if deleted_rows:
            tombstones = write_tombstones(store, name_prefix, deleted.h1, deleted.h2, deleted.version)
            deleted_keys = f"{tombstones}.deleted"
            store.put_if_absent(deleted_keys, encode_parquet(table.take(pa.array(deleted.position))))
    if len(beaten):
        table, keys, chunks = _without(table, keys, chunks, beaten)
    if not table.num_rows and deleted_rows:
        return StagedFile("", 0, 0, None, tuple(chunks), tombstones, deleted_rows, deleted_keys)
    staged = _write_rows(store, table, keys, name_prefix, chunks)
    return replace(staged, tombstones=tombstones, deleted_rows=deleted_rows, deleted_keys=deleted_keys)


def _refuse_unless_stageable(table: pa.Table, key: Sequence[str], name_prefix: str) -> None:
    if not _PREFIX.fullmatch(name_prefix):
        raise Invalid(f"{name_prefix!r:.60} cannot start a file name.", remedy="Use letters, digits, '.', '-' and '_'.")
    if key and VERSION_COLUMN not in table.column_names:
        raise Invalid(
            f"The rows of {name_prefix!r} have no column {VERSION_COLUMN!r}.", remedy="Add it before staging."
        )
    if not key and DELETED_COLUMN in table.column_names and pc.any(table[DELETED_COLUMN]).as_py():
        raise Invalid(f"The rows of {name_prefix!r} delete keys.", remedy="A table without a key has none to delete.")


def _write_rows(
    store: Store, table: pa.Table, keys: KeyFile | None, name_prefix: str, chunks: Sequence[StagedChunk]
) -> StagedFile:
    data, footer = _encoded(table)
    digest = store.digest(data)
    path = f"{name_prefix}-{digest}.parquet"
    sidecar = None
    if keys is not None:
        # Written first, so that each data file that can be committed has it.
        sidecar = sidecar_name(path)
        write_keys(store, sidecar, replace(keys, files=(path,)))
    if not store.put_if_absent(path, data) and not _is_whole(store, path, digest):
        # A machine that lost power may have kept a part of it, or its length alone.
        store.write(path, data)
    stats = file_statistics(footer, finite_columns(table)) if store.may_tell(path) else None
    return StagedFile(path, len(data), table.num_rows, sidecar, tuple(chunks), stats=stats)


def _is_whole(store: Store, path: str, digest: str) -> bool:
    try:
        return store.digest(store.read(path)) == digest
    except (Corrupt, FileNotFoundError):
        return False


def sorted_keys(
    hashes: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], versions: Cells
) -> tuple[KeyFile, npt.NDArray[np.intp]]:
    """The winning rows of a file, sorted by hash, and the positions of the losing rows."""
    h1, h2 = hashes
    version = versions_of(versions)
    order = np.argsort(h1)
    ordered = h1[order]
    beaten = np.empty(0, dtype=np.intp)
    if (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((version, h2, h1))
        is_last = np.append((h1[order][1:] != h1[order][:-1]) | (h2[order][1:] != h2[order][:-1]), True)
        beaten, order = np.sort(order[~is_last]), order[is_last]
        ordered = h1[order]
    position = order.astype(np.uint32)
    return KeyFile(files=("",), h1=ordered, h2=h2[order], version=version[order], position=position), beaten


def all_keys(hashes: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], version: npt.NDArray[np.int64]) -> KeyFile:
    """Every row of a file, sorted by hash."""
    order = np.argsort(hashes[0])
    h1, h2 = (lane[order] for lane in hashes)
    return KeyFile(files=("",), h1=h1, h2=h2, version=version[order], position=order.astype(np.uint32))


def encode_parquet(table: pa.Table) -> memoryview:
    """The table as one Parquet file that simple readers understand.

    Staging must be fast: snappy takes two thirds of zstd's time for a third more bytes, and saves little of numbers that do
    not repeat. Rewrites use zstd."""
    return _encoded(table)[0]


def _encoded(table: pa.Table) -> tuple[memoryview, pq.FileMetaData]:
    """The file and its footer."""
    footer: list[pq.FileMetaData] = []
    dictionary = _repeating_columns(table) if table.num_rows >= SMALL_FILE_ROWS else []
    packed = [name for name in (ROW_COLUMN,) if name in table.column_names and name not in dictionary]
    sink = pa.BufferOutputStream()
    pq.write_table(
        _storable(table),
        sink,
        compression=_compression(table.schema, dictionary),
        use_dictionary=dictionary or False,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED") or None,
        store_schema=False,
        write_page_checksum=True,
        row_group_size=ROW_GROUP_ROWS,
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
        metadata_collector=footer,
    )
    return memoryview(sink.getvalue()), footer[0]


def _compression(schema: pa.Schema, dictionary: Sequence[str]) -> str | dict[str, str]:
    """For the whole file, or for each column: only columns that are not nested can be named."""
    if not all(_is_flat(field.type) for field in schema):
        return "snappy"
    plain = {field.name for field in schema if pa.types.is_floating(field.type)} - set(dictionary)
    return {field.name: "none" if field.name in plain else "snappy" for field in schema}


def _without(
    table: pa.Table, keys: KeyFile, chunks: Sequence[StagedChunk], beaten: npt.NDArray[np.intp]
) -> tuple[pa.Table, KeyFile, list[StagedChunk]]:
    keep = np.ones(table.num_rows, dtype=bool)
    keep[beaten] = False
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    moved = []
    for chunk in chunks:
        first, end = int(kept_before[chunk.first_position]), int(kept_before[chunk.first_position + chunk.rows])
        moved.append(replace(chunk, first_position=first, rows=end - first))
    position = kept_before[keys.position].astype(np.uint32)
    return table.filter(pa.array(keep)), replace(keys, position=position), moved


def _storable(table: pa.Table) -> pa.Table:
    for index, field in enumerate(table.schema):
        if pa.types.is_fixed_size_binary(field.type):
            table = table.set_column(index, field.name, table[field.name].cast(pa.binary()))
    return table


def _repeating_columns(table: pa.Table) -> list[str]:
    sample = table.slice(0, DICTIONARY_SAMPLE_ROWS)
    most_values = table.num_rows / DICTIONARY_REPEATS
    return [
        field.name
        for field, column in zip(table.schema, sample.columns, strict=True)
        if _is_flat(field.type) and _estimated_values(len(column), len(column.unique())) <= most_values
    ]


def _estimated_values(sampled: int, distinct: int) -> float:
    """The number of distinct values of a column, estimated from repetitions in a sample (the inverse birthday problem)."""
    return distinct if distinct < sampled / 2 else sampled**2 / (2 * max(1, sampled - distinct))


def _is_flat(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)
