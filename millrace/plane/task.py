"""What a Spark task does with its share of raw-input: judge each chunk, stage what it holds, report by reference.

Records of raw-input in; records for validated-input, import-error and progress out. Rows never leave the worker."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext

from millrace.exchange.mailboxes import Exchange
from millrace.failpoint import reach
from millrace.lake.errors_table import stored_rejected
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.model.chunk import ROWS, ChunkHeader, ChunkVerdict
from millrace.model.errors import Corrupt
from millrace.model.facts import ChunkJudged, to_dict
from millrace.model.names import chunk_id
from millrace.model.table import Definition
from millrace.plane.checkpoints import Stops
from millrace.plane.judging import ChunkJudge
from millrace.seal.keyring import Keyring
from millrace.settings import KEYS_HERE, KmsSettings
from millrace.validate.judge import JudgedChunk
from millrace.wire.envelope import pack
from millrace.wire.topics import IMPORT_ERROR, PROGRESS, VALIDATED_INPUT

GROUP_ROWS = 200_000
# The property in which Spark hands the batch's number to every task of a streaming query.
BATCH_ID = "streaming.sql.batchId"
OUTPUT = pa.schema([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
OUTPUT_DDL = "topic string, key binary, value binary"


@dataclass(frozen=True)
class JudgeChunks:
    """The function Spark maps over raw-input's records."""

    exchange: Exchange
    query: str
    kms: KmsSettings = KEYS_HERE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exchange, keyring = self.exchange, self.exchange.keyring(self.kms)
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty(BATCH_ID)
        assert batch is not None, "only streaming queries are judged here"
        stops = Stops(exchange.stops, exchange.places.checkpoint(self.query), batch)
        chunks = ChunkJudge(exchange, keyring, stops, is_cautious=context.attemptNumber() > 0)
        groups: dict[tuple[str, str, str | None], ChunkGroup] = {}
        for records in batches:
            for header, definition, judged in chunks.read(record.as_py() for record in records.column("value")):
                if judged is None:
                    yield ChunkGroup(exchange, keyring, definition).pass_on(header)
                    continue
                # Rows of an atomic import await its publication, so they share no file with rows of another import.
                # Rows that are sealed by different data keys share none either.
                key = header.definition, header.import_id if header.publish == "atomic" else "", header.key
                group = groups.setdefault(key, ChunkGroup(exchange, keyring, definition, header.publish, header.key))
                group.add(judged)
                if group.rows >= GROUP_ROWS:
                    yield from groups.pop(key).stage()
        for group in groups.values():
            yield from group.stage()


@dataclass(slots=True)
class ChunkGroup:
    """The judged chunks of one definition that will share a staged file, sealed by the data key if there is one."""

    exchange: Exchange
    keyring: Keyring
    definition: Definition
    publish: str = "rolling"
    key: str | None = None
    judged: list[JudgedChunk] = field(default_factory=list)
    rows: int = 0

    def add(self, judged: JudgedChunk) -> None:
        self.judged.append(judged)
        # A rejected row, with its text and reasons, takes as much room as several accepted ones, a chunk as much as many.
        self.rows += judged.verdict.accepted + 4 * judged.verdict.rejected + 1000

    def stage(self) -> Iterator[pa.RecordBatch]:
        """1. Accepted rows into a file of the table. 2. Rejected rows into a file of the error store. 3. The report."""
        verdicts = [judged.verdict for judged in self.judged]
        self._keep_keys()
        accepted = self._stage_accepted()
        records = [(VALIDATED_INPUT, self._report(accepted, verdicts))]
        for verdicts_of_import, staged in self._stage_rejected():
            records.append((IMPORT_ERROR, self._report(staged, verdicts_of_import)))
        records.append((PROGRESS, pack(to_dict(ChunkJudged(tuple(verdicts))))))
        reach("before_validate_produce")
        yield self._batch(records)

    def pass_on(self, header: ChunkHeader) -> pa.RecordBatch:
        """A change of the table itself: there is nothing to judge, and the sinks apply it at the chunk's version."""
        verdict = ChunkVerdict(header.import_id, header.number, header.version, 0, 0, 0, checksum=header.checksum)
        report = self._report(None, [verdict], kind=header.kind, version=header.version)
        return self._batch([(VALIDATED_INPUT, report), (PROGRESS, pack(to_dict(ChunkJudged((verdict,)))))])

    def _batch(self, records: list[tuple[str, bytes]]) -> pa.RecordBatch:
        key = f"{self.definition.tenant}/{self.definition.table.name}".encode()
        rows = [{"topic": topic, "key": key, "value": value} for topic, value in records]
        return pa.RecordBatch.from_pylist(rows, schema=OUTPUT)

    def _stage_accepted(self) -> StagedFile | None:
        holding = [judged for judged in self.judged if judged.accepted.num_rows]
        if not holding:
            return None
        table = self.definition.table
        # Only chunks with deletes have the column that marks them.
        rows = pa.concat_tables([judged.accepted for judged in holding], promote_options="default")
        first, chunks = holding[0].verdict, _chunks(holding, "accepted")
        store, aside = self._accepted_store(first.import_id), self._aside(first.import_id)
        staged = write_somewhere((store, aside), rows, table.primary_key, _prefix(first), chunks)
        return replace(staged, sealed_by=self.key)

    def _accepted_store(self, owner: str) -> Store:
        """Plain rows go to the table's own folder, where they stay. Sealed rows wait in a folder beside it."""
        if self.key is None:
            return self.exchange.places.table_store(self.definition.tenant, self.definition.table.name)
        return self._aside(owner)

    def _aside(self, owner: str) -> Store:
        """For rows that the folder of the table, or of its rejected rows, does not take. The sink says what is wrong."""
        tenant, table = self.definition.tenant, self.definition.table.name
        if self.key is None:
            return self.exchange.places.store(self.exchange.places.staged(tenant, table))
        seal = self.keyring.seal(tenant, table, self.key, owner)
        return self.exchange.places.staging_store(self.keyring, tenant, table, seal)

    def _keep_keys(self) -> None:
        """Before the verdicts, so that their reader finds the keys. A chunk that is judged again has the same keys."""
        for judged in self.judged:
            if judged.keys:
                self.exchange.rule_keys.keep(judged.verdict.import_id, judged.verdict.number, judged.keys)

    def _stage_rejected(self) -> Iterable[tuple[list[ChunkVerdict], StagedFile]]:
        by_import: dict[str, list[JudgedChunk]] = {}
        for judged in self.judged:
            if judged.rejected is not None:
                by_import.setdefault(judged.verdict.import_id, []).append(judged)
        tenant, table = self.definition.tenant, self.definition.table.name
        for import_id, rejecting in by_import.items():
            store = self.exchange.places.store_for_rejects(self.keyring, tenant, table, self.key, import_id)
            rows = pa.concat_tables([stored_rejected(judged.verdict, judged.rejected) for judged in rejecting])
            prefix, chunks = _prefix(rejecting[0].verdict), _chunks(rejecting, "rejected")
            staged = write_somewhere((store, self._aside(import_id)), rows, (), prefix, chunks)
            yield [judged.verdict for judged in rejecting], staged

    def _report(
        self, staged: StagedFile | None, verdicts: list[ChunkVerdict], kind: str = ROWS, version: int = 0
    ) -> bytes:
        return pack(
            {
                "tenant": self.definition.tenant,
                "table": self.definition.table.name,
                "definition": self.definition.fingerprint,
                "file": None if staged is None else staged.to_dict(),
                "chunks": [[verdict.import_id, verdict.number] for verdict in verdicts],
                "kind": kind,
                "version": version,
                "publish": self.publish,
            }
        )


def write_somewhere(
    stores: tuple[Store, Store], rows: pa.Table, key: Sequence[str], prefix: str, chunks: Sequence[StagedChunk]
) -> StagedFile:
    """Into the first store, or aside into the second one: a folder that takes nothing concerns its own table only."""
    store, aside = stores
    try:
        return write_data_file(store, rows, key, prefix, chunks)
    except (OSError, Corrupt):
        if store == aside:
            raise
        return replace(write_data_file(aside, rows, key, prefix, chunks), is_aside=True)


def _prefix(verdict: ChunkVerdict) -> str:
    return f"{verdict.import_id}-{verdict.number:08d}"


def _chunks(judged: list[JudgedChunk], which: str) -> tuple[StagedChunk, ...]:
    chunks, position = [], 0
    for chunk in judged:
        rows, verdict = getattr(chunk, which).num_rows, chunk.verdict
        chunks.append(StagedChunk(chunk_id(verdict.import_id, verdict.number), position, rows, verdict.version))
        position += rows
    return tuple(chunks)
