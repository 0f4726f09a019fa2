"""One topic of a tenant with its journal: work in, transactions out. No record follows a newer one of its key."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.keyhash import hash_keys
from millrace.model.columns import DELETED_COLUMN
from millrace.model.sinks import Fault, SinkFailed
from millrace.model.table import Definition
from millrace.sink.connector import Rows, Work
from millrace.sink.kafka.journal import Journal, JournalState
from millrace.sink.kafka.records import Encoder, decoded
from millrace.sink.versions import UNKNOWN, Written
from millrace.wire.external_kafka import InRecord, OutwardCluster
from millrace.wire.external_producer import OutBatch, OutRecord, OutwardProducer

MOST_RECORD_BYTES = 8 << 20
# Each is a Python object on its way to the client.
RECORDS_AT_ONCE = 8192
VERSION, FLOOR = "_version", "_floor"


class Line:
    """One topic with its journal, and the only producer that may write to it."""

    def __init__(self, cluster: OutwardCluster, topic: str, form: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._form = form
        self._producer: OutwardProducer | None = None
        self._journal = Journal(cluster, topic)
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def prepare(self, definition: Definition) -> None:
        state = self._caught_up(definition)
        if (state.generation, state.revision) >= (definition.generation, definition.revision) and state.definition:
            return
        if state.generation == definition.generation and state.definition and state.key != definition.table.primary_key:
            raise SinkFailed(
                f"The keys in {self._topic} carry the names {', '.join(state.key)}; they cannot change.",
                Fault.TABLE,
                remedy="Ask for a new generation of the table, or waive this sink.",
            )
        newer = replace(
            state,
            definition=definition.fingerprint,
            generation=definition.generation,
            revision=definition.revision,
            key=definition.table.primary_key,
        )
        self._send(Work(definition, [], definition.floor), newer)

    def write(self, work: Work) -> None:
        self._send(work, self._caught_up(work.definition))

    def _caught_up(self, definition: Definition) -> JournalState:
        if self._producer is None or self._journal.is_behind():
            if self._producer is not None:
                self._producer.close()
            # The new producer fences off the others first. Then what they wrote is read, and nothing can come in between.
            self._producer = OutwardProducer(self._cluster, self._topic, MOST_RECORD_BYTES)
            self._journal.catch_up()
        table = f"{definition.tenant}/{definition.table.name}"
        state = self._journal.state or JournalState(table, "", 0, 0, ())
        if state.table != table:
            raise SinkFailed(
                f"{self._topic} belongs to {state.table}.", Fault.TABLE, remedy="Give each table a topic of its own."
            )
        return state

    def _send(self, work: Work, state: JournalState) -> None:
        assert self._producer is not None
        try:
            self._producer.send(self._records(work, state))
            self._cluster.settle(self._topic)
            self._journal.seen()
        except BaseException:
            # The journal may remember more than was written.
            self.close()
            raise

    def _records(self, work: Work, state: JournalState) -> Iterator[OutRecord | OutBatch]:
        definition = work.definition
        encoder = Encoder(definition, self._form)
        if encoder.schema is not None:
            yield from self._journal.schema(encoder.schema_id, encoder.schema)
        if work.floor > state.floor:
            yield from self._beaten(definition, work.floor)
            self._journal.versions.raise_floor(work.floor)
            state = replace(state, floor=work.floor)
        written: list[Written] = []
        chunks: list[str] = []
        for rows in work.rows:
            if definition.table.primary_key:
                yield from self._changes(definition, encoder, rows, state.floor, written)
            else:
                new = rows.without(self._journal.chunks)
                for batch in new.open():
                    yield from self._records_of(encoder, batch.filter(pc.greater(batch["_version"], state.floor)))
                self._journal.chunks.update(new.chunks)
                chunks += new.chunks
        yield from self._journal.entries(state, written, chunks)

    def _beaten(self, definition: Definition, floor: int) -> Iterator[OutRecord]:
        """Deletes rows up to a raised floor: by tombstones, or without keys by a record that tells readers the floor."""
        headers = ((VERSION, b"%d" % floor), (FLOOR, b"%d" % floor))
        if not definition.table.primary_key:
            yield OutRecord(self._topic, None, None, headers, partition=0)
            return
        for key, record in self._last_records().items():
            if key is not None and record.value is not None and self._version(record) <= floor:
                yield OutRecord(self._topic, key, None, headers)

    def _changes(
        self, definition: Definition, encoder: Encoder, rows: Rows, floor: int, written: list[Written]
    ) -> Iterator[OutRecord | OutBatch]:
        for batch in rows.open():
            first, second = hash_keys([batch[name] for name in definition.table.primary_key])
            versions = batch["_version"].to_numpy()
            known = self._journal.versions.known(first, second)
            is_unsure = (known == UNKNOWN) & (versions <= self._journal.versions.horizon) & (versions > floor)
            if is_unsure.any():
                known[is_unsure] = self._look_up(encoder, batch.filter(pa.array(is_unsure)))
            is_newer = (versions > known) & (versions > floor)
            fresh = batch.filter(pa.array(is_newer))
            if not fresh.num_rows:
                continue
            deletes = fresh[DELETED_COLUMN].to_numpy(zero_copy_only=False)
            part = Written(first[is_newer], second[is_newer], versions[is_newer], deletes)
            self._journal.versions.remember(part)
            written.append(part)
            yield from self._records_of(encoder, fresh)

    def _records_of(self, encoder: Encoder, batch: pa.RecordBatch) -> Iterator[OutRecord | OutBatch]:
        for start in range(0, batch.num_rows, RECORDS_AT_ONCE):
            some = batch.slice(start, RECORDS_AT_ONCE)
            is_deleted = some[DELETED_COLUMN]
            upserts, deletes = some.filter(pc.invert(is_deleted)), some.filter(is_deleted)
            yield OutBatch(self._topic, encoder.keys(upserts), encoder.values(upserts))
            for key, version in zip(encoder.keys(deletes), deletes["_version"].to_pylist(), strict=True):
                yield OutRecord(self._topic, key, None, ((VERSION, b"%d" % version),))

    def _look_up(self, encoder: Encoder, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        keys = encoder.keys(batch)
        wanted = set(keys)
        found = {
            record.key: self._version(record) for record in self._cluster.read(self._topic) if record.key in wanted
        }
        return np.array([found.get(key, UNKNOWN) for key in keys], dtype=np.int64)

    def _last_records(self) -> dict[bytes | None, InRecord]:
        return {record.key: record for record in self._cluster.read(self._topic)}

    def _version(self, record: InRecord) -> int:
        """Tombstones carry the version in a header, rows in their value."""
        if record.value is None:
            return int(record.headers.get(VERSION, b"0"))
        return int(decoded(record.value, self._journal.schemas)["_version"])
