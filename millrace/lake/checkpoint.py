"""Parquet checkpoints of the log: a snapshot's parts in, one file out, and back, so that loading is fast. A checksum tells
whether one is whole."""

import io
import re
from collections.abc import Iterable, Sequence
from functools import cache

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile, Metadata, Protocol, RemovedFile
from millrace.lake.apart import checkpoint_apart
from millrace.lake.bounds import refuse_larger, room
from millrace.lake.checkpoint_columns import WANTED, CheckpointContent, checkpoint_table, empty_table
from millrace.lake.chunk_ids import TransactionColumns
from millrace.lake.decoders import CheckpointJob
from millrace.lake.pages import small_checkpoint
from millrace.lake.store import Store
from millrace.lake.sums import summed_parquet
from millrace.outbound.objects import Entry

LOG_FOLDER = "_delta_log"

_PART = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# Checkpoints of Delta's second kind, which refer to further files.
_BY_UUID = re.compile(r"_delta_log/(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")
_BATCH_ROWS = 16_384


def write_checkpoint(
    store: Store,
    version: int,
    protocol: Protocol,
    metadata: Metadata,
    files: Iterable[AddFile],
    chunk_ids: TransactionColumns,
    removed: Iterable[RemovedFile] = (),
) -> None:
    rows = checkpoint_table(protocol, metadata, list(files), chunk_ids, list(removed))
    store.write(f"{LOG_FOLDER}/{version:020}.checkpoint.parquet", _encoded(rows))
    store.write(f"{LOG_FOLDER}/_last_checkpoint", orjson.dumps({"version": version, "size": rows.num_rows}))


def read_checkpoint(store: Store, part: Entry, into: CheckpointContent) -> None:
    """Adds one file of a checkpoint. What is not small for sure is decoded apart."""
    refuse_larger(store.where, part.name, part.size, store.bounds.log_bytes)
    data = store.read_log(part.name, room(part.size, store.bounds.log_bytes))
    small = small_checkpoint(data, _our_columns(), store.bounds.plain_bytes)
    if small is None:
        for batch in checkpoint_apart(store, part.name, data, CheckpointJob(WANTED)):
            into.take(batch)
        return
    with small:
        for batch in small.iter_batches(_BATCH_ROWS, columns=[kind for kind, _ in WANTED], use_threads=False):
            into.take(batch)


@cache
def _our_columns() -> tuple[str, ...]:
    """The columns of Parquet files that we write, by their paths."""
    schema = pq.ParquetFile(io.BytesIO(_encoded(empty_table()))).schema
    return tuple(schema.column(number).path for number in range(len(schema)))


def _encoded(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    # Without dictionaries its pages tell how much comes out of them (`pages.py`).
    options = {"compression": "zstd", "use_dictionary": False, "store_schema": False}
    pq.write_table(rows, sink, **options)
    return summed_parquet(sink.getvalue())


def complete_checkpoints(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """The complete checkpoints, by version."""
    found: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        match = _PART.fullmatch(entry.name)
        if match:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(entry)
    return {version: parts for (version, count), parts in sorted(found.items()) if len(parts) == count}


def unread_checkpoint(entries: Sequence[Entry]) -> str | None:
    """The name of the newest checkpoint of a kind that is not read here."""
    return max((entry.name for entry in entries if _BY_UUID.fullmatch(entry.name)), default=None)
