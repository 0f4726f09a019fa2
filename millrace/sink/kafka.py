"""A Kafka topic of the tenant's: rows as records under their keys, deletes as tombstones, on a compacted topic.

Compaction keeps the last record of a key, so no record may follow that is older than one before it. What was written is
remembered in a topic beside (`kafka_journal`), in the same transaction as the rows; a row that is older than what is
remembered is left out. What is too old to be remembered is looked up in the topic itself."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.lake.keyhash import hash_keys
from millrace.model.columns import DELETED_COLUMN
from millrace.model.errors import MillraceError
from millrace.model.names import checked_name
from millrace.model.sinks import Abilities, Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.sink.addresses import permitted
from millrace.sink.foreign import Definitions, Rows, Work
from millrace.sink.kafka_journal import SETTINGS, Journal, State
from millrace.sink.kafka_records import Encoder, as_read, decoded
from millrace.sink.versions import UNKNOWN, Written
from millrace.wire.outward import InRecord, NotTaken, OutBatch, OutRecord, OutwardCluster, OutwardProducer

MOST_RECORD_BYTES = 8 << 20
VERSION, FLOOR = "_version", "_floor"
_ROW_ERRORS = frozenset(
    {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "INVALID_MSG_SIZE"}
)
_TABLE_ERRORS = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "INVALID_TOPIC_EXCEPTION",
        "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "INVALID_CONFIG", "POLICY_VIOLATION",
        "INVALID_TRANSACTION_TIMEOUT",
    }
)  # fmt: skip


class KafkaSink:
    kind: ClassVar[str] = "kafka"
    abilities: ClassVar[Abilities] = Abilities(atomic_publish=True, nested_types=True, exactly_once_append=True)
    settings_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["hosts"],
        "properties": {
            "hosts": {
                "type": "array",
                "items": {"type": "string", "format": "hostname"},
                "description": "Some of the cluster's brokers.",
            },
            "port": {"type": "integer", "default": 9092, "description": "Their port."},
            "topic": {
                "type": "string",
                "description": "The topic is TENANT.TOPIC; left out, it is called as the table.",
            },
            "format": {
                "type": "string",
                "enum": ["json", "avro"],
                "default": "json",
                "description": "Of the values. Avro's schemas are in the topic beside, TENANT.TOPIC.millrace.",
            },
            "partitions": {"type": "integer", "default": 6, "description": "Of the topic, when it is made."},
            "replication": {
                "type": "integer",
                "default": -1,
                "description": "Of both topics; -1 is the cluster's own.",
            },
            "user": {"type": "string", "description": "Who writes, if the cluster asks (SASL)."},
            "password": {
                "type": "string",
                "format": "secret",
                "description": "A reference to the secret: env:…, file:… or k8s:….",
            },
            "mechanism": {
                "type": "string",
                "enum": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
                "default": "SCRAM-SHA-512",
                "description": "How the user proves to be one.",
            },
            "tls": {
                "type": "boolean",
                "default": False,
                "description": "Encrypt, and check the brokers' certificates.",
            },
        },
    }

    def __init__(self, target: SinkTarget, secret: Callable[[str], str]) -> None:
        self._settings = given = target.settings
        self._name = target.name
        self._form = str(given.get("format", "json"))
        self._has_tls = bool(given.get("tls", False))
        self._sasl: dict[str, str | int | bool] = {}
        if "user" in given:
            self._sasl = {
                "sasl.mechanism": str(given.get("mechanism", "SCRAM-SHA-512")),
                "sasl.username": str(given["user"]),
                "sasl.password": secret(str(given["password"])) if "password" in given else "",
            }
        self._cluster: OutwardCluster | None = None
        self._lines: dict[str, _Line] = {}

    def check(self) -> None:
        cluster = self._connected()
        topic = f"millrace.check.{hashlib.blake2b(self._name.encode(), digest_size=6).hexdigest()}"
        cluster.ensure(topic, 1, self._replication, {"cleanup.policy": "compact"})
        try:
            producer = OutwardProducer(cluster, topic, MOST_RECORD_BYTES)
            producer.send([OutRecord(topic, b"k", b"v")])
            producer.close()
        finally:
            cluster.delete(topic)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        self._line(definition).prepare(definition)

    def write(self, work: Work) -> None:
        line = self._line(work.definition)
        try:
            line.write(work)
        except NotTaken as failed:
            if not failed.is_displaced:
                raise
            # Another worker wrote to the topic meanwhile: go on from where it left.
            self._line(work.definition).write(work)

    def classify(self, error: BaseException) -> Fault:
        match error:
            case SinkFailed():
                return error.fault
            case NotTaken() if error.name in _ROW_ERRORS:
                return Fault.ROW
            case NotTaken() if error.name in _TABLE_ERRORS:
                return Fault.TABLE
            case MillraceError() | OSError():
                return Fault.SINK
            case ValueError() | TypeError() | OverflowError():
                return Fault.ROW
        return Fault.TABLE

    def read_back(self, definition: Definition) -> pa.Table:
        return self._line(definition).read_back(definition)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()

    @property
    def _replication(self) -> int:
        return int(self._settings.get("replication", -1))

    def _line(self, definition: Definition) -> "_Line":
        cluster = self._connected()
        name = str(self._settings.get("topic", definition.table.name))
        topic = f"{checked_name('tenant', definition.tenant)}.{checked_name('topic', name)}"
        line = self._lines.get(topic)
        if line is None or not line.is_open:
            is_new = not cluster.partitions(topic)
            policy = "compact" if definition.table.primary_key else "delete"
            settings = {"cleanup.policy": policy, "max.message.bytes": str(MOST_RECORD_BYTES)}
            if is_new:
                cluster.ensure(topic, int(self._settings.get("partitions", 6)), self._replication, settings)
            cluster.ensure(topic + ".millrace", 1, self._replication, SETTINGS)
            line = self._lines[topic] = _Line(cluster, topic, self._form)
        return line

    def _connected(self) -> OutwardCluster:
        """Judges the brokers we were told, and those that they tell us of, each time: a cluster can name new ones."""
        port = int(self._settings.get("port", 9092))
        told = [(host, permitted(host)) for host in map(str, self._settings["hosts"])]
        if self._cluster is None:
            # A certificate is made out to a name; without one, the address that was judged is the one that is used.
            hosts = [host for host, _ in told] if self._has_tls else [found for _, all_ in told for found in all_]
            protocol = f"{'SASL_' if self._sasl else ''}{'SSL' if self._has_tls else 'PLAINTEXT'}"
            listed = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
            self._cluster = OutwardCluster({"bootstrap.servers": listed, "security.protocol": protocol, **self._sasl})
        for host, _ in self._cluster.brokers():
            permitted(host)
        return self._cluster


class _Line:
    """One topic, with its journal, under the one producer that may write to it."""

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

    def _caught_up(self, definition: Definition) -> State:
        if self._producer is None or self._journal.is_behind():
            if self._producer is not None:
                self._producer.close()
            # First the others are displaced, then what they wrote is read: nothing can come between.
            self._producer = OutwardProducer(self._cluster, self._topic, MOST_RECORD_BYTES)
            self._journal.catch_up()
        table = f"{definition.tenant}/{definition.table.name}"
        state = self._journal.state or State(table, "", 0, 0, ())
        if state.table != table:
            raise SinkFailed(
                f"{self._topic} belongs to {state.table}.", Fault.TABLE, remedy="Give each table a topic of its own."
            )
        return state

    def _send(self, work: Work, state: State) -> None:
        assert self._producer is not None
        try:
            self._producer.send(self._records(work, state))
            self._cluster.settle(self._topic)
            self._journal.seen()
        except BaseException:
            # What is remembered may be more than what was written.
            self.close()
            raise

    def _records(self, work: Work, state: State) -> Iterator[OutRecord | OutBatch]:
        definition = work.definition
        encoder = Encoder(definition, self._form)
        if self._form == "avro":
            yield from self._journal.schema(encoder.schema_id, encoder.schema)
        if work.floor > state.floor:
            yield from self._beaten(definition, work.floor)
            self._journal.versions.raise_floor(work.floor)
            state = replace(state, floor=work.floor)
        written: list[Written] = []
        chunks: list[int] = []
        for rows in work.rows:
            if definition.table.primary_key:
                yield from self._changes(definition, encoder, rows, state.floor, written)
            else:
                new = [version for version in rows.versions if version not in self._journal.chunks]
                yield from self._appended(encoder, rows, state.floor, new)
                self._journal.chunks.update(new)
                chunks += new
        yield from self._journal.entries(state, written, chunks)

    def _beaten(self, definition: Definition, floor: int) -> Iterator[OutRecord]:
        """Every row up to a raised floor goes: by a tombstone, or, where there are no keys, by a word to readers."""
        headers = ((VERSION, b"%d" % floor), (FLOOR, b"%d" % floor))
        if not definition.table.primary_key:
            yield OutRecord(self._topic, None, None, headers, partition=0)
            return
        for key, record in self._last_records().items():
            if record.value is not None and self._version(record) <= floor:
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

    def _appended(self, encoder: Encoder, rows: Rows, floor: int, new: list[int]) -> Iterator[OutRecord | OutBatch]:
        wanted = pa.array(new, pa.int64())
        for batch in rows.open() if new else ():
            chosen = pc.and_(pc.is_in(batch["_version"], wanted), pc.greater(batch["_version"], floor))
            yield from self._records_of(encoder, batch.filter(chosen))

    def _records_of(self, encoder: Encoder, batch: pa.RecordBatch) -> Iterator[OutRecord | OutBatch]:
        is_deleted = batch[DELETED_COLUMN]
        upserts, deletes = batch.filter(pc.invert(is_deleted)), batch.filter(is_deleted)
        yield OutBatch(self._topic, encoder.keys(upserts), encoder.values(upserts))
        for key, version in zip(encoder.keys(deletes), deletes["_version"].to_pylist(), strict=True):
            yield OutRecord(self._topic, key, None, ((VERSION, b"%d" % version),))

    def _look_up(self, encoder: Encoder, batch: pa.RecordBatch) -> "np.ndarray[Any, np.dtype[np.int64]]":
        keys = encoder.keys(batch)
        wanted = set(keys)
        found = {
            record.key: self._version(record) for record in self._cluster.read(self._topic) if record.key in wanted
        }
        return np.array([found.get(key, UNKNOWN) for key in keys], dtype=np.int64)

    def _last_records(self) -> dict[bytes | None, InRecord]:
        return {record.key: record for record in self._cluster.read(self._topic)}

    def read_back(self, definition: Definition) -> pa.Table:
        self._journal.catch_up()
        floor = self._journal.state.floor if self._journal.state else 0
        if definition.table.primary_key:
            records = list(self._last_records().values())
        else:
            records = list(self._cluster.read(self._topic))
        rows = [decoded(record.value, self._journal.schemas) for record in records if record.value is not None]
        return as_read([row for row in rows if row["_version"] > floor], definition)

    def _version(self, record: InRecord) -> int:
        """Tombstones have it beside them, rows within."""
        if record.value is None:
            return int(record.headers.get(VERSION, b"0"))
        return int(decoded(record.value, self._journal.schemas)["_version"])
