"""Parquet checkpoints of the log: a snapshot's parts in, one file out, and back, so that loading is fast.
Removed files are left out: only this package vacuums, and it has its own record of them.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import Action, AddFile, Metadata, Protocol, Transaction
from millrace.lake.apart import checkpoint_apart
from millrace.lake.bounds import parsed, refuse_larger, room
from millrace.lake.decoders import CheckpointJob, actions_in
from millrace.lake.pages import small_checkpoint
from millrace.lake.store import Store
from millrace.outbound.objects import Entry

LOG_FOLDER = "_delta_log"

_PART = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
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
_WANTED = (
    ("protocol", ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures")),
    ("metaData", ("id", "name", "schemaString", "partitionColumns", "createdTime", "configuration")),
    ("txn", ("appId", "version", "lastUpdated")),
    ("add", ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector")),
)
_BATCH_ROWS = 4096
_SCHEMA = pa.schema(_struct(txn=_TXN, add=_ADD, remove=_REMOVE, metaData=_METADATA, protocol=_PROTOCOL))


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
    store.write(f"{LOG_FOLDER}/{version:020}.checkpoint.parquet", _encoded(rows))
    store.write(f"{LOG_FOLDER}/_last_checkpoint", orjson.dumps({"version": version, "size": len(rows)}))


def read_checkpoint(store: Store, part: Entry) -> Iterator[Action]:
    """The actions of one file of a checkpoint, without removes. What is not small for sure is decoded apart."""
    refuse_larger(store.where, part.name, part.size, store.bounds.log_bytes)
    data = store.read_log(part.name, room(part.size, store.bounds.log_bytes))
    small = small_checkpoint(data, _our_columns())
    if small is None:
        for piece in checkpoint_apart(store, part.name, data, CheckpointJob(_WANTED)):
            yield from map(parsed, piece.split(b"\n"))
        return
    with small:
        for batch in small.iter_batches(_BATCH_ROWS, columns=[kind for kind, _ in _WANTED], use_threads=False):
            yield from actions_in(batch)


@cache
def _our_columns() -> tuple[str, ...]:
    """The columns of Parquet files that we write, by their paths."""
    schema = pq.ParquetFile(io.BytesIO(_encoded([]))).schema
    return tuple(schema.column(number).path for number in range(len(schema)))


def _encoded(rows: Sequence[Action]) -> bytes:
    sink = io.BytesIO()
    # Without dictionaries its pages tell how much comes out of them (`pages.py`).
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False}
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink, **options)
    return sink.getvalue()


def complete_checkpoints(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """The complete checkpoints, by version."""
    found: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        match = _PART.fullmatch(entry.name)
        if match:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(entry)
    return {version: parts for (version, count), parts in sorted(found.items()) if len(parts) == count}
