"""The connector for Delta tables in a bucket or in HDFS: one commit per delivery."""

import uuid
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pyarrow as pa

from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.decide import as_add
from millrace.lake.remote import RemoteStore
from millrace.lake.row_keys import make_sidecar
from millrace.lake.schema import VERSION_COLUMN, spec_of
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.table import LakeTable
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.outbound.objects import Objects
from millrace.sink.connector import Definitions, Rows, Work
from millrace.sink.context import SinkContext
from millrace.sink.delta.places import remote_store, table_objects
from millrace.sink.delta.settings import DeltaRemoteSettings

OPEN_TABLES = 256
# Each holds the rows of one staged file at most.
UPLOADS_AT_ONCE = 4
CLAIMS_AT_ONCE, CLAIM_ROUNDS, CLAIM_SECONDS = 16, 8, 30.0
# A courier serves other tables, too.
WRITE_SECONDS = 900.0
_CLAIMS = [b"%d" % number for number in range(CLAIMS_AT_ONCE)]


class DeltaRemoteSink:
    def __init__(self, settings: DeltaRemoteSettings, context: SinkContext) -> None:
        self._place = settings
        self._context = context
        self._definitions: Definitions | None = None
        self._tables: OrderedDict[tuple[str, str], LakeTable] = OrderedDict()

    def check(self) -> None:
        """Claims names, each many times at once: a store that lets two have one name would lose commits."""
        objects = table_objects(self._context, self._place, "millrace-check", f"t{uuid.uuid4().hex}")
        names = [f"_delta_log/{number:020d}.json" for number in range(CLAIM_ROUNDS)]
        try:
            if not all(_is_claimed_once(objects, name) for name in names) or not objects.list("_delta_log"):
                raise Invalid(
                    f"The store of {objects.url} lets two writers have one name.",
                    remedy="Use one that honours If-None-Match on PUT, also for writers at the same moment, as S3 does.",
                    code="no_conditional_put",
                )
        finally:
            for name in names:
                objects.delete(name)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        self._definitions = definitions
        table = self._table(definition)
        table.store.hurry(WRITE_SECONDS)
        table.prepare(definition)

    def write(self, work: Work) -> None:
        table = self._table(work.definition)
        table.store.hurry(WRITE_SECONDS)
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            staged = list(pool.map(lambda rows: _stage(table, work.definition, rows), work.rows))
        files = tuple(DefinedFile(file, work.definition) for file in staged if file is not None)
        # Every delivery carries the definition's floor. Rows at or below the table's own floor are already deleted.
        is_raised = work.floor > 0 and work.floor > TableState.of(table.snapshot().metadata).floor
        table.write(WriteBatch(files, work.floor if is_raised else NO_FLOOR, work.definition))

    def classify(self, error: BaseException) -> Fault:
        if isinstance(error, SinkFailed):
            return error.fault
        return Fault.SINK if isinstance(error, OSError | Unavailable) else Fault.TABLE

    def close(self) -> None:
        self._tables.clear()

    def _table(self, definition: Definition) -> LakeTable:
        known = definition.tenant, definition.table.name
        table = self._tables.pop(known, None)
        if table is None:
            store = remote_store(self._context, self._place, *known)
            table = LakeTable(store, spec_of(definition), self._definition)
        self._tables[known] = table
        if len(self._tables) > OPEN_TABLES:
            self._tables.popitem(last=False)
        return table

    def _definition(self, fingerprint: str) -> Definition:
        assert self._definitions is not None
        return self._definitions(fingerprint)


def _is_claimed_once(objects: Objects, name: str) -> bool:
    """A store that checks first and writes then refuses the second of two claims, but not one of the same moment."""
    together = Barrier(CLAIMS_AT_ONCE)

    def claim(number: int) -> bool:
        together.wait(CLAIM_SECONDS)
        return objects.put_if_absent(name, _CLAIMS[number])

    with ThreadPoolExecutor(CLAIMS_AT_ONCE) as pool:
        has_won = pool.map(claim, range(CLAIMS_AT_ONCE))
        winners = [content for content, won in zip(_CLAIMS, has_won, strict=True) if won]
    # The winner may not know that it won, if the answer was lost on its way.
    return len(winners) < 2 and objects.get(name) in (winners or _CLAIMS) and not objects.put_if_absent(name, b"late")


def _stage(table: LakeTable, definition: Definition, rows: Rows) -> StagedFile | None:
    if rows.staged is not None:
        file, path = rows.staged
        _store(table).adopt(file.path, path)
        if definition.table.primary_key:
            make_sidecar(table.store, as_add(file), definition.table.primary_key)
        return file
    key, batches = definition.table.primary_key, list(rows.open())
    content = pa.Table.from_batches(batches) if batches else None
    if content is None or not content.num_rows:
        return None
    prefix = rows.chunks[0].replace("/", "-").replace("@", "-")[:80]
    if key:
        return write_data_file(table.store, content, key, prefix)
    content, chunks = _by_chunk(content, rows)
    return write_data_file(table.store, content, (), prefix, chunks)


def _store(table: LakeTable) -> RemoteStore:
    assert isinstance(table.store, RemoteStore)
    return table.store


def _by_chunk(content: pa.Table, rows: Rows) -> tuple[pa.Table, list[StagedChunk]]:
    """Rows without a key are identified by their chunks. Each chunk has its own version."""
    versions = content[VERSION_COLUMN].to_numpy()
    if (versions[1:] < versions[:-1]).any():
        content = content.take(pa.array(np.argsort(versions, kind="stable")))
    found, counts = np.unique(versions, return_counts=True)
    named = dict(zip(rows.versions, rows.chunks, strict=True))
    starts = np.cumsum(counts) - counts
    return content, [
        StagedChunk(named[version], start, count, version)
        for version, start, count in zip(found.tolist(), starts.tolist(), counts.tolist(), strict=True)
    ]
