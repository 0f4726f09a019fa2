"""Parquet checkpoints of the log: a snapshot's parts in, one file out, and back, so that loading is fast.
Removed files are left out: only this package vacuums, and it has its own record of them.
"""

import io
import re
from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, Transaction
from millrace.lake.store import Store
from millrace.outbound.objects import Entry

LOG_FOLDER = "_delta_log"

_PART = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXTS),
        ("deletionVector", _VECTOR),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXTS),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_SCHEMA = pa.schema(
    [("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)]
)


def write_checkpoint(
    store: Store,
    version: int,
    protocol: Protocol,
    metadata: Metadata,
    files: Iterable[AddFile],
    transactions: Iterable[Transaction],
) -> None:
    rows: list[Action] = [protocol.to_json(), metadata.to_json()]
    rows += [transaction.to_json() for transaction in transactions]
    rows += [file.to_json(data_change=False) for file in files]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink, compression="zstd", store_schema=False)
    store.write(f"{LOG_FOLDER}/{version:020}.checkpoint.parquet", sink.getvalue())
    store.write(f"{LOG_FOLDER}/_last_checkpoint", orjson.dumps({"version": version, "size": len(rows)}))


def read_checkpoint(store: Store, parts: Iterable[str]) -> Iterator[Action]:
    for part in parts:
        table = pq.read_table(io.BytesIO(store.read(part)))
        wanted = [name for name in _SCHEMA.names if name in table.column_names and name != "remove"]
        for name in wanted:
            column = table[name].drop_null()
            for value in column.to_pylist():
                yield {name: value}


def complete_checkpoints(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """The complete checkpoints, by version."""
    found: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        match = _PART.fullmatch(entry.name)
        if match:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(entry)
    return {version: parts for (version, count), parts in sorted(found.items()) if len(parts) == count}
