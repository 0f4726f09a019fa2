"""The Kafka connector: one line per topic, each with its journal and its transactional producer."""

import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.model.names import checked_name
from millrace.model.sinks import Fault
from millrace.model.table import Definition
from millrace.sink.connector import Definitions, Work, usual_fault
from millrace.sink.context import SinkContext
from millrace.sink.kafka.journal import SETTINGS, SUFFIX
from millrace.sink.kafka.line import MOST_RECORD_BYTES, Line
from millrace.sink.kafka.settings import KafkaSinkSettings
from millrace.wire.external_kafka import NotTaken, OutwardCluster
from millrace.wire.external_producer import OutRecord, OutwardProducer
from millrace.wire.external_relay import Relay

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
    def __init__(self, settings: KafkaSinkSettings, context: SinkContext) -> None:
        self._settings = settings
        self._permitted = context.permitted
        self._sasl: dict[str, str | int | bool] = {}
        if settings.user is not None:
            self._sasl = {
                "sasl.mechanism": settings.mechanism,
                "sasl.username": settings.user,
                "sasl.password": context.secret(settings.password) if settings.password else "",
            }
        self._relay: Relay | None = None
        self._cluster: OutwardCluster | None = None
        self._lines: dict[str, Line] = {}

    def check(self) -> None:
        with self._explained():
            self._check(self._connected())

    def _check(self, cluster: OutwardCluster) -> None:
        topic = f"millrace.check.{secrets.token_hex(6)}"
        cluster.ensure(topic, 1, self._settings.replication, {"cleanup.policy": "compact"})
        try:
            producer = OutwardProducer(cluster, topic, MOST_RECORD_BYTES)
            producer.send([OutRecord(topic, b"k", b"v")])
            producer.close()
        finally:
            cluster.delete(topic)

    def prepare(self, definition: Definition, definitions: Definitions) -> None:
        with self._explained():
            self._line(definition).prepare(definition)

    def write(self, work: Work) -> None:
        with self._explained():
            self._write(work)

    def _write(self, work: Work) -> None:
        line = self._line(work.definition)
        try:
            line.write(work)
        except NotTaken as failed:
            if not failed.is_displaced:
                raise
            # Another worker wrote to the topic in the meantime. Continue after its records.
            self._line(work.definition).write(work)

    def classify(self, error: BaseException) -> Fault:
        match error:
            case NotTaken() if error.name in _ROW_ERRORS:
                return Fault.ROW
            case NotTaken() if error.name in _TABLE_ERRORS:
                return Fault.TABLE
        return usual_fault(error)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._cluster = None
        # After the clients: nobody else may listen on a port that they still know.
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def _line(self, definition: Definition) -> Line:
        self._settings.refuse_tenant(definition.tenant)
        cluster = self._connected()
        name = definition.table.name if self._settings.topic is None else self._settings.topic
        topic = f"{checked_name('tenant', definition.tenant)}.{checked_name('topic', name)}"
        line = self._lines.get(topic)
        if line is None or not line.is_open:
            is_new = not cluster.partitions(topic)
            policy = "compact" if definition.table.primary_key else "delete"
            settings = {"cleanup.policy": policy, "max.message.bytes": str(MOST_RECORD_BYTES)}
            if is_new:
                cluster.ensure(topic, self._settings.partitions, self._settings.replication, settings)
            cluster.ensure(topic + SUFFIX, 1, self._settings.replication, SETTINGS)
            line = self._lines[topic] = Line(cluster, topic, self._settings.format)
        return line

    def _connected(self) -> OutwardCluster:
        """Asks the cluster for its brokers, each time: it can advertise new ones."""
        if self._cluster is None or self._relay is None:
            hosts, port = self._settings.hosts, self._settings.port
            for host in hosts:
                self._permitted(host)
            self._relay = Relay(self._permitted, ssl.create_default_context() if self._settings.tls else None)
            listed = ",".join(self._relay.address(host, port) for host in hosts)
            # The client speaks to the relay in plain text; the relay encrypts.
            protocol = "SASL_PLAINTEXT" if self._sasl else "PLAINTEXT"
            self._cluster = OutwardCluster({"bootstrap.servers": listed, "security.protocol": protocol, **self._sasl})
        self._cluster.reach()
        self._relay.check()
        return self._cluster

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The client knows only that a connection failed. The relay knows why, and where."""
        try:
            yield
        except NotTaken as failed:
            if self._relay is not None and failed.is_unreached:
                self._relay.explain()
            raise
