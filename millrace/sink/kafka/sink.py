"""A Kafka topic of the tenant's: rows as records under their keys, deletes as tombstones, on a compacted topic.

Compaction keeps the last record of a key, so no record may follow that is older than one before it. What was written is
remembered in a topic beside (`kafka_journal`), in the same transaction as the rows; a row that is older than what is
remembered is left out. What is too old to be remembered is looked up in the topic itself."""

import secrets
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa

from millrace.model.errors import MillraceError
from millrace.model.names import checked_name
from millrace.model.sinks import Abilities, Fault, SinkFailed, SinkTarget
from millrace.model.table import Definition
from millrace.sink.addresses import permitted, refuse_private_host
from millrace.sink.connector import Definitions, Work
from millrace.sink.kafka.journal import SETTINGS, SUFFIX
from millrace.sink.kafka.line import MOST_RECORD_BYTES, Line
from millrace.wire.external_kafka import NotTaken, OutRecord, OutwardCluster, OutwardProducer

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
        self._lines: dict[str, Line] = {}

    def check(self) -> None:
        cluster = self._connected()
        topic = f"millrace.check.{secrets.token_hex(6)}"
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
        self._lines.clear()
        self._cluster = None

    @property
    def _replication(self) -> int:
        return int(self._settings.get("replication", -1))

    def _line(self, definition: Definition) -> Line:
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
            cluster.ensure(topic + SUFFIX, 1, self._replication, SETTINGS)
            line = self._lines[topic] = Line(cluster, topic, self._form)
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
            refuse_private_host(host)
        return self._cluster
