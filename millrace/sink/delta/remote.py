"""Delta tables in a bucket or in HDFS: the rows that couriers bring become data files there, one commit per delivery, the
last version winning. The same tables as on this machine's disk, for readers that know nothing of ours."""

import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millrace.exchange.places import places_below
from millrace.lake.batch import Batch, Delivery
from millrace.lake.decide import as_add
from millrace.lake.index import make_sidecar
from millrace.lake.read import scan
from millrace.lake.remote import RemoteStore
from millrace.lake.schema import VERSION_COLUMN, spec_of
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.table import LakeTable
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import REMOTE_DELTA_KIND, Abilities, Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition, TableDeclaration
from millrace.settings import Settings
from millrace.sink.connector import Definitions, Rows, Work
from millrace.sink.delta.places import check_place, remote_store, table_objects

OPEN_TABLES = 256
# Each holds the rows of one staged file at most.
UPLOADS_AT_ONCE = 4


class DeltaRemoteSink:
    kind: ClassVar[str] = REMOTE_DELTA_KIND
    abilities: ClassVar[Abilities] = Abilities(
        atomic_publish=True, nested_types=True, exactly_once_append=True, survives="power"
    )
    settings_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["location"],
        "properties": {
            "location": {
                "type": "string",
                "format": "uri",
                "description": "s3://BUCKET/PATH, hdfs://HOST:PORT/PATH or webhdfs://HOST:PORT/PATH (swebhdfs: TLS): the "
                "table is below it at TENANT/TABLE. `platform`: where the operator keeps tables.",
            },
            "endpoint": {
                "type": "string",
                "format": "uri",
                "description": "S3: an address that speaks its protocol and honours If-None-Match, if not Amazon's own. "
                "HDFS: where the name node answers HTTP, if not http://HOST:9870.",
            },
            "region": {"type": "string", "default": "us-east-1", "description": "S3: of the bucket."},
            "access_key": {
                "type": "string",
                "format": "secret",
                "description": "S3: a reference to the key's name: env:…, file:… or k8s:….",
            },
            "secret_key": {"type": "string", "format": "secret", "description": "S3: a reference to the key itself."},
            "session_token": {
                "type": "string",
                "format": "secret",
                "description": "S3: a reference to the token that goes with temporary keys.",
            },
            "user": {"type": "string", "description": "HDFS: who writes, where the cluster believes what it is told."},
            "token": {"type": "string", "format": "secret", "description": "HDFS: a reference to a delegation token."},
        },
    }

    @classmethod
    def declared(cls, _table: TableDeclaration, target: SinkTarget) -> Abilities:
        check_place(target.settings)
        # HDFS answers when its data nodes have the bytes in memory.
        survives = "power" if str(target.settings["location"]).startswith("s3:") else "process"
        return replace(cls.abilities, survives=survives)

    def __init__(self, target: SinkTarget, secret: Callable[[str], str]) -> None:
        self._settings = target.settings
        self._secret = secret
        self._places = places_below(Settings().home)
        self._definitions: Definitions | None = None
        self._prepared: dict[tuple[str, str], str] = {}
        self._tables: OrderedDict[tuple[str, str], LakeTable] = OrderedDict()

    def check(self) -> None:
        """Claims a name twice: a store that lets both have it would lose commits."""
        objects = table_objects(self._settings, "millrace-check", f"t{uuid.uuid4().hex}", self._secret)
        name = "_delta_log/00000000000000000000.json"
        try:
            is_first, is_second = objects.put_if_absent(name, b"first"), objects.put_if_absent(name, b"second")
            if not is_first or is_second or objects.get(name) != b"first" or not objects.list("_delta_log"):
                raise Invalid(
                    f"The store of {objects.url} lets two writers have one name.",
                    remedy="Use one that honours If-None-Match on PUT, as S3 does.",
                    code="no_conditional_put",
                )
        finally:
            objects.delete(name)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        self._definitions = definitions
        known = definition.tenant, definition.table.name
        if self._prepared.get(known) != definition.fingerprint:
            self._table(definition).prepare(definition)
            self._prepared[known] = definition.fingerprint

    def write(self, work: Work) -> None:
        table = self._table(work.definition)
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            staged = list(pool.map(lambda rows: _stage(table, work.definition, rows), work.rows))
        files = tuple(Delivery(file, work.definition) for file in staged if file is not None)
        # The floor of a definition comes with every delivery; what is at or below the table's own has gone already.
        is_raised = work.floor > 0 and work.floor > TableState.of(table.snapshot().metadata).floor
        table.write(Batch(files, work.floor if is_raised else NO_FLOOR, work.definition))

    def classify(self, error: BaseException) -> Fault:
        if isinstance(error, SinkFailed):
            return error.fault
        return Fault.SINK if isinstance(error, OSError | Unavailable) else Fault.TABLE

    def read_back(self, definition: Definition) -> pa.Table:
        table = self._table(definition)
        names = [*(column.name for column in definition.columns), VERSION_COLUMN]
        return scan(table.store, table.snapshot(), names)

    def close(self) -> None:
        self._tables.clear()

    def _table(self, definition: Definition) -> LakeTable:
        known = definition.tenant, definition.table.name
        table = self._tables.pop(known, None)
        if table is None:
            store = remote_store(self._places, self._settings, *known, self._secret)
            table = LakeTable(store, spec_of(definition), self._definition)
        self._tables[known] = table
        if len(self._tables) > OPEN_TABLES:
            self._tables.popitem(last=False)
        return table

    def _definition(self, fingerprint: str) -> Definition:
        assert self._definitions is not None
        return self._definitions(fingerprint)


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
    """Rows without a key are told apart by their chunks; each chunk has a version of its own."""
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
