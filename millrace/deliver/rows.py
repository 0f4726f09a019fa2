"""The rows of parked items: files of a queue in, Arrow batches in the shape of the table's newest definition out.

Batch after batch, so that memory does not grow with the files."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from millrace.arrow.types import stored_schema
from millrace.deliver.queue import Item
from millrace.exchange.pins import Pins
from millrace.exchange.places import Places
from millrace.lake.conform import UNVERSIONED, conformed, opened
from millrace.lake.keyhash import hash_keys
from millrace.lake.log import load
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.target import Lineage
from millrace.lake.tombstones import Tombstones
from millrace.model.columns import DELETED_COLUMN
from millrace.model.table import Definition
from millrace.seal.files import open_part
from millrace.seal.keyring import Keyring
from millrace.sink.connector import Rows

BATCH_ROWS = 32_768


@dataclass(frozen=True)
class ParkedRows:
    """Items of one table in its `newest` shape. `added` is the age of the definition that added the target to it."""

    places: Places
    keyring: Keyring
    pins: Pins
    newest: Definition
    known: Callable[[str], Definition]
    added: tuple[int, int]

    def of(self, item: Item) -> list[Rows]:
        """Sinks recognise chunks of rows without a key by their versions, which replays of one import share: such chunks go
        into separate parts."""
        chunks = item.group.file.chunks if item.group.file else ()
        layers = [] if self.known(item.group.definition).table.primary_key else _layers(chunks)
        if len(layers) < 2:
            return [_named(chunks, lambda: self._opened(item), self._as_staged(item))]
        return [_named(layer, partial(self._opened, item, _others(chunks, layer))) for layer in layers]

    def _opened(self, item: Item, left_out: BitMap | None = None) -> Iterator[pa.RecordBatch]:
        assert item.group.file is not None
        for part, is_deleted in ((item.group.file.path, False), (item.group.file.deleted_keys, True)):
            if part:
                yield from self._batches(item, part, is_deleted, left_out)

    def _as_staged(self, item: Item) -> tuple[StagedFile, Path] | None:
        file, is_same = item.group.file, item.group.definition == self.newest.fingerprint
        if file is None or not file.path or file.deleted_rows or file.sealed_by or item.is_backfill or not is_same:
            return None
        return file, self.pins.path(file.path)

    def _batches(self, item: Item, part: str, is_deleted: bool, left_out: BitMap | None) -> Iterator[pa.RecordBatch]:
        written = self.known(item.group.definition)
        lineage, alive = Lineage(self.known), self._filters(item, written, is_deleted)
        if left_out is not None:
            alive = lambda table, start: _without(table, start, left_out)  # noqa: E731
        position = 0
        source = open_part(self.pins.path(part), part, self.keyring, written.tenant, written.table.name)
        with opened(source) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, use_threads=False):
                table = pa.Table.from_batches([batch])
                if item.is_backfill:
                    # Another engine may have written the file.
                    table = _as_declared(table, written, part)
                table, position = alive(table, position), position + batch.num_rows
                if written.fingerprint != self.newest.fingerprint:
                    table = lineage.reshape(written, self.newest).rows(table)
                yield from _marked(table, self.newest, is_deleted).to_batches()

    def _filters(self, item: Item, written: Definition, is_deleted: bool) -> Callable[[pa.Table, int], pa.Table]:
        """Leaves out rows that were dead when the table was copied, or that lose to a delete from before the target."""
        if item.dead is not None:
            dead = BitMap.deserialize(self.pins.path(item.dead).read_bytes())
            return lambda table, start: _without(table, start, dead)
        key = written.table.primary_key
        if not is_deleted and key and not item.is_backfill and written.age < self.added:
            graves = _Graves(self.places.table_store(written.tenant, written.table.name))
            return lambda table, _: graves.survivors(table, key)
        return lambda table, _: table


def _named(
    chunks: Sequence[StagedChunk],
    opened: Callable[[], Iterator[pa.RecordBatch]],
    staged: tuple[StagedFile, Path] | None = None,
) -> Rows:
    names, versions = tuple(chunk.chunk_id for chunk in chunks), tuple(chunk.version for chunk in chunks)
    return Rows(names, versions, opened, staged)


def _layers(chunks: Sequence[StagedChunk]) -> list[list[StagedChunk]]:
    """The chunks in as few parts as possible, so that no part has a version twice."""
    layers: list[list[StagedChunk]] = []
    met: Counter[int] = Counter()
    for chunk in chunks:
        if met[chunk.version] == len(layers):
            layers.append([])
        layers[met[chunk.version]].append(chunk)
        met[chunk.version] += 1
    return layers


def _others(chunks: Sequence[StagedChunk], layer: Sequence[StagedChunk]) -> BitMap:
    """Positions of the rows of all chunks but those of the layer."""
    left_out = BitMap()
    for chunk in chunks:
        if chunk not in layer:
            left_out.add_range(chunk.first_position, chunk.first_position + chunk.rows)
    return left_out


class _Graves:
    """The tombstones of the Delta table, for a target that was added after those rows were deleted."""

    def __init__(self, store: Store) -> None:
        self._tombstones = Tombstones(store)
        self._names = TableState.of(load(store).metadata).tombstones

    def survivors(self, table: pa.Table, key: tuple[str, ...]) -> pa.Table:
        if not self._names:
            return table
        h1, h2 = hash_keys([table[name] for name in key])
        order = np.argsort(h1, kind="stable")
        gone = np.empty(len(h1), dtype=np.int64)
        gone[order] = self._tombstones.versions(self._names, h1[order], h2[order])
        return table.filter(pc.greater(table["_version"], pa.array(gone)))


def _without(table: pa.Table, start: int, dead: BitMap) -> pa.Table:
    keep = np.ones(table.num_rows, dtype=bool)
    here = BitMap(range(start, start + table.num_rows)) & dead
    keep[np.asarray(here.to_array(), dtype=np.int64) - start] = False
    return table.filter(pa.array(keep))


def _as_declared(table: pa.Table, definition: Definition, name: str) -> pa.Table:
    """Rows of a file of the Delta table. Those that another engine added have no import, number and version."""
    rows = conformed(table, stored_schema(definition.columns), definition.table.name, name)
    for column, value in (("_version", UNVERSIONED), ("_import", ""), ("_row", 0)):
        if rows[column].null_count:
            at = rows.schema.get_field_index(column)
            rows = rows.set_column(at, rows.schema.field(at), rows[column].fill_null(value))
    return rows


def _marked(table: pa.Table, definition: Definition, is_deleted: bool) -> pa.Table:
    schema = stored_schema(definition.columns)
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    loose = pa.schema([pa.field(field.name, field.type) for field in schema])
    marks = pa.repeat(pa.scalar(is_deleted), table.num_rows)
    return pa.table(columns, schema=loose).append_column(DELETED_COLUMN, marks)
