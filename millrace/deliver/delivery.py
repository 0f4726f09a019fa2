"""Items of a queue into their target, in a worker: rows take the table's present shape, bad ones are set apart. A worker does
not open the control store: everything it needs is in its order, in the pinned files and in the definitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from millrace.deliver.budget import TimeIsUp, within
from millrace.deliver.opened import Opened
from millrace.deliver.queue import Item
from millrace.deliver.rows import BATCH_ROWS, ParkedRows
from millrace.exchange.mailboxes import Exchange
from millrace.exchange.pins import Pins
from millrace.model.chunk import TRUNCATE
from millrace.model.names import chunk_id
from millrace.model.sinks import Fault, SinkTarget
from millrace.model.table import Definition
from millrace.settings import KEYS_HERE, KmsSettings
from millrace.sink.connector import Connector, Rows, Work
from millrace.sink.context import SinkContext
from millrace.sink.contract import END, END_NUMBER

MOST_REFUSED = 1000
# A target that hangs must not keep a core for ever; what it does not take in this time is tried again, in smaller parts.
BUDGET_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to deliver. `definition` is the table's newest as far as the target is concerned; items of definitions
    older than `added` are of imports that began before the target was added."""

    pins: Pins
    target: SinkTarget
    items: tuple[Item, ...]
    definition: str | None = None
    added: tuple[int, int] = (0, 0)
    budget_seconds: float = BUDGET_SECONDS


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the target will never take."""

    import_id: str
    row: int
    version: int
    message: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """`fault` is None when everything is durable but the `refused` rows; `is_late` when there was too little time."""

    fault: str | None = None
    message: str = ""
    refused: tuple[RefusedRow, ...] = ()
    is_late: bool = False


def deliver(order: Order, exchange: Exchange, context: SinkContext, kms: KmsSettings = KEYS_HERE) -> Delivered:
    """`kms` may hold a secret, and Spark may write data of a task to disk: so it is not part of the order."""
    try:
        sink = _opened.get(order.target, context)
    except Exception as error:
        return Delivered(Fault.SINK.value, f"{type(error).__name__}: {error}"[:1000])
    try:
        with within(order.budget_seconds):
            return Delivered(refused=tuple(_bring(order, sink, exchange, context, kms)))
    except Exception as error:
        fault = sink.classify(error)
        _opened.forget(order.target, context)
        reach = Fault.TABLE if fault is Fault.ROW else fault
        return Delivered(reach.value, f"{type(error).__name__}: {error}"[:1000], is_late=isinstance(error, TimeIsUp))
    finally:
        # The worker lives on; the memory of these rows must not stay with it.
        pa.default_memory_pool().release_unused()


def _bring(
    order: Order, sink: Connector, exchange: Exchange, context: SinkContext, kms: KmsSettings
) -> list[RefusedRow]:
    known = exchange.definitions.read
    named = {item.group.definition for item in order.items} | ({order.definition} if order.definition else set())
    newest = max((known(fingerprint) for fingerprint in named), key=lambda definition: definition.age)
    floor = max((item.version for item in order.items if item.group.kind == TRUNCATE), default=0)
    floor = max(floor, newest.floor, *(item.floor for item in order.items))
    parked = ParkedRows(exchange.places, exchange.keyring(kms), order.pins, newest, known, order.added)
    rows = [
        part
        for item in order.items
        if item.group.file is not None and known(item.group.definition).generation == newest.generation
        for part in parked.of(item)
    ]
    _opened.prepare(order.target, context, newest, known)
    return _write(sink, Work(newest, rows, floor, _ended(order.items, newest, known)))


def _ended(
    items: Sequence[Item], newest: Definition, known: Callable[[str], Definition]
) -> list[tuple[str, tuple[str, ...]]]:
    ends = (item.group for item in items if item.group.kind == END)
    return [
        (group.import_id, tuple(chunk_id(*chunk) for chunk in group.chunks if chunk[1] != END_NUMBER))
        for group in ends
        if known(group.definition).generation == newest.generation
    ]


def _write(sink: Connector, work: Work) -> list[RefusedRow]:
    """All at once; if a row is at fault, part by part, until only the rows remain that the target does not take."""
    try:
        sink.write(work)
        return []
    except Exception as error:
        if sink.classify(error) is not Fault.ROW:
            raise
        return _bisect(sink, work, error)


def _bisect(sink: Connector, work: Work, error: Exception) -> list[RefusedRow]:
    parts = _parts(work)
    if not parts:
        (row,) = [row for rows in work.rows for batch in rows.open() for row in batch.to_pylist()]
        return [RefusedRow(row["_import"], row["_row"], row["_version"], f"{error}"[:500])]
    refused: list[RefusedRow] = []
    for part in parts:
        refused += _write(sink, replace(work, rows=[part], ended=()))
        if len(refused) > MOST_REFUSED:
            raise error
    if work.ended:
        sink.write(replace(work, rows=[]))
    return refused


def _parts(work: Work) -> list[Rows]:
    """Each group of rows by itself, in which no key occurs twice; then halves. Without a key a target recognises chunks: then
    each chunk by itself, and halves under names of their own, or the second half would count as a repetition of the first."""
    if len(work.rows) > 1:
        return list(work.rows)
    (rows,) = work.rows
    table = pa.Table.from_batches(list(rows.open()))
    if table.num_rows <= 1:
        return []
    has_key = bool(work.definition.table.primary_key)
    if len(rows.chunks) > 1 and not has_key:
        chunks = zip(rows.chunks, rows.versions, strict=True)
        cut = [(table.filter(pc.equal(table["_version"], version)), chunk, version) for chunk, version in chunks]
        return [_whole(part, (chunk,), (version,)) for part, chunk, version in cut if part.num_rows]
    half = table.num_rows // 2
    halves = [table.slice(0, half), table.slice(half)]
    if has_key:
        return [_whole(part, rows.chunks, rows.versions) for part in halves]
    (chunk,) = rows.chunks
    return [_whole(part, (_part_name(chunk, part),), rows.versions) for part in halves]


def _part_name(chunk: str, part: pa.Table) -> str:
    numbers = part["_row"]
    return f"{chunk.partition('#')[0]}#{numbers[0].as_py()}-{numbers[-1].as_py()}"


def _whole(table: pa.Table, chunks: tuple[str, ...], versions: tuple[int, ...]) -> Rows:
    return Rows(chunks, versions, lambda: iter(table.to_batches(BATCH_ROWS)))


_opened = Opened(most=16)
