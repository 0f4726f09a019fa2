"""Items of a queue into their target, in a worker: rows brought to the table's present shape, bad ones set apart."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.batch import age
from millrace.lake.target import Lineage
from millrace.model.chunk import TRUNCATE
from millrace.model.columns import DELETED_COLUMN, stored_schema
from millrace.model.names import Home
from millrace.model.sinks import Fault, SinkTarget
from millrace.model.table import Definition
from millrace.sink.foreign import ForeignSink, Rows, Work
from millrace.sink.parking import Item, Queue
from millrace.sink.registry import sink_class
from millrace.sink.secrets import read_secret

BATCH_ROWS = 32_768
MOST_REFUSED = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is asked to deliver."""

    home: str
    folder: str
    target: SinkTarget
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the target will never take."""

    import_id: str
    row: int
    version: int
    message: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """`fault` is None when everything is durable but the `refused` rows."""

    fault: str | None = None
    message: str = ""
    refused: tuple[Refused, ...] = ()


def deliver(order: Order) -> Delivered:
    known: Callable[[str], Definition] = lambda fingerprint: _definition(order.home, fingerprint)  # noqa: E731
    newest = max((known(item.group.definition) for item in order.items), key=age)
    try:
        sink = _open(order.target.kind, _Key(order.target))
    except Exception as error:
        return Delivered(Fault.SINK.value, f"{type(error).__name__}: {error}"[:1000])
    floor = max((item.version for item in order.items if item.group.kind == TRUNCATE), default=0)
    queue = Queue(Path(order.folder))
    lineage = Lineage(known)
    rows = [
        _rows(queue, item, known(item.group.definition), newest, lineage)
        for item in order.items
        if item.group.file is not None and known(item.group.definition).generation == newest.generation
    ]
    try:
        sink.prepare(newest, known)
        refused = _write(sink, Work(newest, rows, max(floor, newest.floor)))
    except Exception as error:
        _open.cache_clear()
        fault = sink.classify(error)
        return Delivered(
            (Fault.TABLE if fault is Fault.ROW else fault).value, f"{type(error).__name__}: {error}"[:1000]
        )
    return Delivered(refused=tuple(refused))


def _write(sink: ForeignSink, work: Work) -> list[Refused]:
    """All at once; if a row is at fault, halves of halves until only the rows remain that the target will not take."""
    try:
        sink.write(work)
        return []
    except Exception as error:
        if sink.classify(error) is not Fault.ROW:
            raise
        return _bisect(sink, work, error)


def _bisect(sink: ForeignSink, work: Work, error: Exception) -> list[Refused]:
    table = pa.Table.from_batches([batch for rows in work.rows for batch in rows.open()])
    if table.num_rows == 1:
        row = {name: table[name][0].as_py() for name in ("_import", "_row", "_version")}
        return [Refused(row["_import"], row["_row"], row["_version"], f"{error}"[:500])]
    chunks = tuple(chunk for rows in work.rows for chunk in rows.chunks)
    versions = tuple(version for rows in work.rows for version in rows.versions)
    refused: list[Refused] = []
    half = table.num_rows // 2
    for part in (table.slice(0, half), table.slice(half)):
        refused += _write(sink, Work(work.definition, [_whole(part, chunks, versions)], work.floor))
        if len(refused) > MOST_REFUSED:
            raise error
    return refused


def _whole(table: pa.Table, chunks: tuple[str, ...], versions: tuple[int, ...]) -> Rows:
    return Rows(chunks, versions, lambda: iter(table.to_batches(BATCH_ROWS)))


def _rows(queue: Queue, item: Item, written: Definition, newest: Definition, lineage: Lineage) -> Rows:
    def opened() -> Iterator[pa.RecordBatch]:
        assert item.group.file is not None
        for part, is_deleted in ((item.group.file.path, False), (item.group.file.deleted_keys, True)):
            if part:
                yield from _batches(queue.path_of(part), is_deleted)

    def _batches(path: Path, is_deleted: bool) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, memory_map=True) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, use_threads=False):
                table = pa.Table.from_batches([batch])
                if written.fingerprint != newest.fingerprint:
                    table = lineage.reshape(written, newest).rows(table)
                yield from _marked(table, newest, is_deleted).to_batches()

    chunks = item.group.file.chunks if item.group.file else ()
    return Rows(tuple(chunk.chunk_id for chunk in chunks), tuple(chunk.version for chunk in chunks), opened)


def _marked(table: pa.Table, definition: Definition, is_deleted: bool) -> pa.Table:
    schema = stored_schema(definition.columns)
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    loose = pa.schema([pa.field(field.name, field.type) for field in schema])
    marks = pa.repeat(pa.scalar(is_deleted), table.num_rows)
    return pa.table(columns, schema=loose).append_column(DELETED_COLUMN, marks)


class _Key:
    """A target as a key: the same settings are the same connection."""

    def __init__(self, target: SinkTarget) -> None:
        self.target = target

    def __hash__(self) -> int:
        return hash(repr(self.target))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.target == other.target


@lru_cache(maxsize=16)
def _open(kind: str, key: _Key) -> ForeignSink:
    return sink_class(kind)(key.target, read_secret)


@lru_cache(maxsize=4096)
def _definition(home: str, fingerprint: str) -> Definition:
    return Definition.from_json(Home(Path(home)).definition(fingerprint).read_bytes())


def total_rows(items: Sequence[Item]) -> int:
    return sum(item.rows for item in items)
