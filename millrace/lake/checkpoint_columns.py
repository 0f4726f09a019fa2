"""The rows of a checkpoint as Arrow columns: batches in, the files, chunk ids and state of a table out, and back. No row
becomes an object that it need not become: a checkpoint lists all files of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.actions import (
    FILE_WEIGHT,
    TRANSACTION_WEIGHT,
    Action,
    AddFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemovedFile,
    checked_path,
)
from millrace.lake.bounds import parsed
from millrace.lake.chunk_ids import NO_IDS, TransactionColumns

_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
_TEXTS, _NAMES = pa.map_(_TEXT, _TEXT), pa.list_(_TEXT)


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


_VECTOR = _struct(storageType=_TEXT, pathOrInlineDv=_TEXT, offset=_INT, sizeInBytes=_INT, cardinality=_LONG)
_ADD = _struct(
    path=_TEXT, partitionValues=_TEXTS, size=_LONG, modificationTime=_LONG, dataChange=_FLAG, stats=_TEXT, tags=_TEXTS,
    deletionVector=_VECTOR,
)  # fmt: skip
_REMOVE = _struct(
    path=_TEXT, deletionTimestamp=_LONG, dataChange=_FLAG, extendedFileMetadata=_FLAG, partitionValues=_TEXTS,
    size=_LONG, deletionVector=_VECTOR,
)  # fmt: skip
_METADATA = _struct(
    id=_TEXT, name=_TEXT, description=_TEXT, format=_struct(provider=_TEXT, options=_TEXTS), schemaString=_TEXT,
    partitionColumns=_NAMES, createdTime=_LONG, configuration=_TEXTS,
)  # fmt: skip
_PROTOCOL = _struct(minReaderVersion=_INT, minWriterVersion=_INT, readerFeatures=_NAMES, writerFeatures=_NAMES)
_TXN = _struct(appId=_TEXT, version=_LONG, lastUpdated=_LONG)
_SCHEMA = pa.schema(_struct(txn=_TXN, add=_ADD, remove=_REMOVE, metaData=_METADATA, protocol=_PROTOCOL))

WANTED = (
    ("protocol", ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures")),
    ("metaData", ("id", "name", "schemaString", "partitionColumns", "createdTime", "configuration")),
    ("txn", ("appId", "version", "lastUpdated")),
    ("add", ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector")),
    ("remove", ("path", "deletionTimestamp", "size", "deletionVector")),
    # Checkpoints of Delta's version 2 list files elsewhere.
    ("sidecar", ("path",)),
)
# Other writers name the number of rows first too. Where another text stands first, it is parsed.
_ROWS_FIRST = r'^\{\s*"numRecords"\s*:\s*(?P<rows>[0-9]{1,18})\s*[,}]'
_NOTHING: Mapping[str, str | None] = {}


class Overweight(Exception):
    """A snapshot would take too much memory."""


@dataclass(slots=True)
class CheckpointContent:
    """A checkpoint, as far as it was read. Overweight if it would take more memory than `most_weight`."""

    most_weight: int
    protocol: Protocol = field(default_factory=Protocol)
    metadata: Metadata | None = None
    files: dict[str, AddFile] = field(default_factory=dict)
    chunk_ids: TransactionColumns = field(default_factory=lambda: NO_IDS)
    removed: list[RemovedFile] = field(default_factory=list)
    weight: int = 0
    rows: int = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """ValueError, LookupError or TypeError if a row is not what it must be."""
        self.rows += batch.num_rows
        for kind, column in zip(batch.schema.names, batch.columns, strict=True):
            if len(present := column.drop_null()):
                self._take(kind, present)

    def _take(self, kind: str, values: pa.StructArray) -> None:
        if kind == "add":
            self._weigh(values, FILE_WEIGHT, "path", "stats")
            self.files.update((file.path, file) for file in _added(values))
        elif kind == "remove":
            self._weigh(values, FILE_WEIGHT, "path")
            self.removed += _removed(values)
        elif kind == "txn":
            self._weigh(values, TRANSACTION_WEIGHT, "appId")
            self.chunk_ids = _chunk_ids(self.chunk_ids, values)
        elif kind == "metaData":
            self.metadata = Metadata.from_json(values[-1].as_py())
        elif kind == "protocol":
            self.protocol = Protocol.from_json(values[-1].as_py())
        elif kind == "sidecar":
            raise ValueError("it is a checkpoint of Delta's version 2, which lists files elsewhere")

    def _weigh(self, values: pa.StructArray, each: int, *texts: str) -> None:
        """Before there is an object of any of them."""
        said = sum(_characters(values, name) for name in texts)
        vectors = values.field("deletionVector") if values.type.get_field_index("deletionVector") >= 0 else None
        marked = 0 if vectors is None else len(vectors) - vectors.null_count
        self.weight += each * len(values) + said + FILE_WEIGHT * marked
        if self.weight > self.most_weight:
            raise Overweight


def _characters(values: pa.StructArray, name: str) -> int:
    index = values.type.get_field_index(name)
    if index < 0:
        return 0
    column = pc.struct_field(values, [index])
    if pa.types.is_dictionary(column.type):
        # Each row may repeat one long text.
        return pc.sum(pc.utf8_length(column.dictionary.cast(_TEXT)).take(column.indices)).as_py() or 0
    return pc.sum(pc.utf8_length(column.cast(_TEXT))).as_py() or 0


def _added(values: pa.StructArray) -> list[AddFile]:
    stats = _child(values, "stats", _TEXT)
    return list(
        map(
            AddFile,
            _paths(values),
            _numbers(values, "size"),
            _row_counts(stats),
            _numbers(values, "modificationTime"),
            _vectors(values),
            stats.to_pylist(),
            [texts or _NOTHING for texts in _maps(values, "partitionValues")],
            [texts or None for texts in _maps(values, "tags")],
        )
    )


def _removed(values: pa.StructArray) -> list[RemovedFile]:
    moments, sizes = (pc.fill_null(_child(values, name, _LONG), 0) for name in ("deletionTimestamp", "size"))
    return list(map(RemovedFile, _paths(values), moments.to_pylist(), sizes.to_pylist(), _vectors(values)))


def _chunk_ids(known: TransactionColumns, values: pa.StructArray) -> TransactionColumns:
    app_ids = _child(values, "appId", pa.large_string())
    _refuse_nulls(app_ids, "appId")
    versions = np.array(_numbers(values, "version", least=-1), dtype=np.int64)
    updated = pc.fill_null(_child(values, "lastUpdated", _LONG), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return known.with_new(TransactionColumns.of(app_ids, versions, updated))


def _paths(values: pa.StructArray) -> list[str]:
    paths = _child(values, "path", _TEXT)
    _refuse_nulls(paths, "path")
    # Only an encoded path, or one with an empty part or one of dots, can be no plain name.
    if pc.any(pc.match_substring_regex(paths, r"(?:^|/)\.{0,2}(?:/|$)|%|\x00")).as_py():
        return [checked_path(path) for path in paths.to_pylist()]
    return list(paths.to_pylist())


def _numbers(values: pa.StructArray, name: str, least: int = 0) -> list[int]:
    numbers = _child(values, name, _LONG)
    _refuse_nulls(numbers, name)
    if pc.min(numbers).as_py() < least:
        raise TypeError(f"{name} is {pc.min(numbers).as_py()}, not a number that it can be")
    return list(numbers.to_pylist())


def _row_counts(stats: pa.StringArray) -> list[int]:
    found = pc.struct_field(pc.extract_regex(stats, _ROWS_FIRST), "rows").cast(_LONG)
    counts = list(pc.fill_null(found, -1).to_pylist())
    for number in pc.indices_nonzero(pc.and_(pc.is_valid(stats), pc.is_null(found))).to_pylist():
        counts[number] = AddFile.from_json(_only_stats(stats[number].as_py())).rows
    return counts


def _only_stats(stats: str) -> Action:
    if stats and not isinstance(parsed(stats), dict):
        raise TypeError("the statistics of a file are no object")
    return {"path": "", "size": 0, "modificationTime": 0, "stats": stats}


def _vectors(values: pa.StructArray) -> list[DeletionVector | None]:
    index = values.type.get_field_index("deletionVector")
    column = None if index < 0 else pc.struct_field(values, [index])
    if column is None or column.null_count == len(column):
        return [None] * len(values)
    marked = column.drop_null()
    storages, locations = (_child(marked, name, _TEXT) for name in ("storageType", "pathOrInlineDv"))
    _refuse_nulls(storages, "storageType")
    _refuse_nulls(locations, "pathOrInlineDv")
    offsets = _child(marked, "offset", _LONG)
    if (pc.min(offsets).as_py() or 0) < 0:
        raise TypeError("the offset of a deletion vector is negative")
    sizes, counts = (_numbers(marked, name) for name in ("sizeInBytes", "cardinality"))
    vectors = map(DeletionVector, storages.to_pylist(), locations.to_pylist(), offsets.to_pylist(), sizes, counts)
    return [next(vectors) if is_marked else None for is_marked in column.is_valid().to_pylist()]


def _maps(values: pa.StructArray, name: str) -> list[dict[str, str | None] | None]:
    index = values.type.get_field_index(name)
    column = None if index < 0 else pc.struct_field(values, [index])
    if column is None or column.offsets[0] == column.offsets[-1]:
        return [None] * len(values)
    return [_texts(pairs) for pairs in column.to_pylist()]


def _texts(pairs: Sequence[tuple[str, str | None]] | None) -> dict[str, str | None]:
    found = dict(pairs or ())
    if not all(isinstance(name, str) and isinstance(text, str | None) for name, text in found.items()):
        raise TypeError("a value of a map is not a text")
    return found


def _child(values: pa.StructArray, name: str, kind: pa.DataType) -> Any:
    index = values.type.get_field_index(name)
    if index < 0:
        return pa.nulls(len(values), kind)
    child = pc.struct_field(values, [index])
    return child if child.type == kind else child.cast(kind)


def _refuse_nulls(values: Any, name: str) -> None:
    if values.null_count:
        raise TypeError(f"{name} is missing")


def checkpoint_table(
    protocol: Protocol,
    metadata: Metadata,
    files: Sequence[AddFile],
    chunk_ids: TransactionColumns,
    removed: Sequence[RemovedFile],
) -> pa.Table:
    """One row for each of them."""
    parts = {
        "protocol": pa.array([protocol.to_json()["protocol"]], _PROTOCOL),
        "metaData": pa.array([metadata.to_json()["metaData"]], _METADATA),
        "txn": _txn_column(chunk_ids),
        "add": _add_column(files),
        "remove": _remove_column(removed),
    }
    total, columns, before = sum(map(len, parts.values())), {}, 0
    for kind, values in parts.items():
        after = total - before - len(values)
        filled = [pa.nulls(before, values.type), values, pa.nulls(after, values.type)]
        columns[kind] = pa.concat_arrays(filled)
        before += len(values)
    return pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def empty_table() -> pa.Table:
    return _SCHEMA.empty_table()


def _txn_column(known: TransactionColumns) -> pa.StructArray:
    return _structs(
        _TXN,
        {
            "appId": known.app_ids.cast(_TEXT),
            "version": pa.array(known.versions),
            "lastUpdated": pa.array(known.updated),
        },
    )


def _add_column(files: Sequence[AddFile]) -> pa.StructArray:
    return _structs(
        _ADD,
        {
            "path": pa.array([file.path for file in files], _TEXT),
            "partitionValues": _map_column([file.partition_values for file in files]),
            "size": pa.array([file.size for file in files], _LONG),
            "modificationTime": pa.array([file.modified_ms for file in files], _LONG),
            "dataChange": pa.array(np.zeros(len(files), dtype=bool)),
            "stats": pa.array([file.written_stats for file in files], _TEXT),
            "tags": _map_column([file.tags for file in files]),
            "deletionVector": _vector_column(files),
        },
    )


def _remove_column(removed: Sequence[RemovedFile]) -> pa.StructArray:
    return _structs(
        _REMOVE,
        {
            "path": pa.array([file.path for file in removed], _TEXT),
            "deletionTimestamp": pa.array([file.removed_ms for file in removed], _LONG),
            "dataChange": pa.array(np.zeros(len(removed), dtype=bool)),
            "extendedFileMetadata": pa.array(np.zeros(len(removed), dtype=bool)),
            "partitionValues": pa.nulls(len(removed), _TEXTS),
            "size": pa.array([file.size for file in removed], _LONG),
            "deletionVector": _vector_column(removed),
        },
    )


def _structs(kind: pa.StructType, children: Mapping[str, Any]) -> pa.StructArray:
    return pa.StructArray.from_arrays([children[part.name] for part in kind], fields=list(kind))


def _map_column(values: Sequence[Mapping[str, str | None] | None]) -> Any:
    return pa.array([None if texts is None else list(texts.items()) for texts in values], _TEXTS)


def _vector_column(files: Sequence[AddFile] | Sequence[RemovedFile]) -> Any:
    return pa.array([file.deletion_vector and file.deletion_vector.to_json() for file in files], _VECTOR)
