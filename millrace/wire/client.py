"""Kafka as a log: append with confirmed delivery, read from given positions, trim. Foreign errors are translated here."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millrace.model.errors import Unavailable
from millrace.observe import observe
from millrace.wire.topics import MAX_RECORD_BYTES, Topic

REQUEST_SECONDS = 10.0
DELIVERY_SECONDS = 120
MOST_QUEUED = 100_000
QUEUED_BYTES = 64 << 20
FULL_SECONDS = 0.002
# Errors that go away when the broker is back.
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


@dataclass(frozen=True, slots=True)
class Appended:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    at_ms: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the log is and how to speak to it (`options` holds SASL and TLS settings)."""

    bootstrap: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def client_config(self) -> dict[str, str | int | bool]:
        return {"bootstrap.servers": self.bootstrap, **dict(self.options)}


def open_consumer(cluster: Cluster, group: str, **more: str | int | bool) -> Consumer:
    """It joins no group and keeps no position."""
    fixed = {"group.id": f"millrace-{group}", "enable.auto.commit": False, "allow.auto.create.topics": False}
    return Consumer({**cluster.client_config(), **fixed, "log_level": 2, **more})


RecordHeaders = Sequence[tuple[str, bytes]]


class Appender:
    """Appends records; each append is a future that holds the offset once the log has confirmed it.

    `queued_bytes` bounds what waits in memory for the broker."""

    def __init__(self, cluster: Cluster, queued_bytes: int = QUEUED_BYTES) -> None:
        self._producer = Producer(
            {
                **cluster.client_config(),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0.5,
                "message.max.bytes": MAX_RECORD_BYTES,
                "queue.buffering.max.kbytes": queued_bytes >> 10,
                "queue.buffering.max.messages": MOST_QUEUED,
                "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
                "compression.type": "none",
                "topic.metadata.refresh.interval.ms": 60_000,
                "log_level": 2,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name="appender", daemon=True)
        self._thread.start()

    def append(
        self, topic: str, key: bytes, value: bytes, partition: int, headers: RecordHeaders = ()
    ) -> "Future[Appended]":
        """Waits while the local queue is full, because the broker is the pace. Not for an event loop."""
        while (appended := self.try_append(topic, key, value, partition, headers)) is None:
            if self._stopping.wait(FULL_SECONDS):
                raise Unavailable("The server stops.", remedy="Ask again when it is back.")
        return appended

    def try_append(
        self, topic: str, key: bytes, value: bytes, partition: int, headers: RecordHeaders = ()
    ) -> "Future[Appended] | None":
        """The same without waiting. None: the local queue is full."""
        done: Future[Appended] = Future()
        try:
            self._producer.produce(topic, value, key, partition, on_delivery=_confirm(done), headers=list(headers))
        except BufferError:
            return None
        except KafkaException as error:
            raise unavailable(error) from error
        return done

    def flush(self, seconds: float = DELIVERY_SECONDS) -> None:
        if self._producer.flush(seconds):
            raise Unavailable("Kafka did not confirm all records in time.", remedy="Is the broker running?")

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(5)

    def _deliver(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(0.1)
            except Exception as error:
                # Without this thread nothing would ever be confirmed again.
                observe("trouble", kind="appender", error=f"{type(error).__name__}: {error}"[:1000])


def _confirm(done: "Future[Appended]") -> Callable[[KafkaError | None, Message], None]:
    def confirmed(error: KafkaError | None, message: Message) -> None:
        if not done.set_running_or_notify_cancel():
            # Whoever waited has left; what is in the log stays there.
            return
        if error is not None:
            done.set_exception(
                Unavailable(f"Kafka did not take the record: {error.str()}.", remedy="Is the broker running?")
            )
            return
        done.set_result(Appended(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)))

    return confirmed


class LogReader:
    """Reads whole topics from given positions, in order per partition. Keeps no position of its own."""

    def __init__(
        self, cluster: Cluster, topic: str, positions: Mapping[int, int], *, may_have_gaps: bool = False
    ) -> None:
        """`may_have_gaps`: what was trimmed before a position is passed over instead of refused."""
        start = {"auto.offset.reset": "earliest" if may_have_gaps else "error"}
        fetch = {"fetch.wait.max.ms": 100, "fetch.message.max.bytes": MAX_RECORD_BYTES}
        self._consumer = open_consumer(cluster, "reader", **start, **fetch)
        known = range(partition_count(self._consumer, topic))
        starts = [TopicPartition(topic, number, positions.get(number, OFFSET_BEGINNING)) for number in known]
        self._consumer.assign(starts)

    def poll(self, limit: int, seconds: float) -> list[Record]:
        """Up to `limit` records: waits for the first only, then takes what is at hand."""
        try:
            first = self._consumer.consume(1, seconds)
            more = self._consumer.consume(limit - 1, 0.0) if first and limit > 1 else []
        except KafkaException as error:
            raise unavailable(error) from error
        return [record for message in (*first, *more) if (record := _record(message)) is not None]

    def close(self) -> None:
        self._consumer.close()


def _record(message: Message) -> Record | None:
    error = message.error()
    if error is not None:
        if error.retriable() or error.code() in _PASSING:
            return None
        raise Unavailable(f"Kafka: {error.str()}.")
    return Record(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        message.timestamp()[1],
        message.key() or b"",
        message.value() or b"",
    )


def partition_count(client: Consumer | AdminClient, topic: str) -> int:
    try:
        metadata = client.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
    except KafkaException as error:
        raise unavailable(error) from error
    if metadata.error is not None or not metadata.partitions:
        raise Unavailable(f"Topic {topic} does not exist.", remedy="Start the platform with `millrace up`.")
    return len(metadata.partitions)


class Topics:
    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient({**cluster.client_config(), "log_level": 2})

    def ensure(self, topics: Iterable[Topic], replication: int) -> None:
        """Creates the topics that are missing and returns when every broker question about them is answered."""
        wanted = [NewTopic(t.name, t.partitions, replication, config=t.config) for t in topics]
        for future in self._admin.create_topics(wanted, request_timeout=REQUEST_SECONDS).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise unavailable(error) from error
        deadline = time.monotonic() + REQUEST_SECONDS
        for topic in wanted:
            self._wait_for(topic.topic, deadline)

    def _wait_for(self, topic: str, deadline: float) -> None:
        while True:
            try:
                self.partitions(topic)
                return
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def partitions(self, topic: str) -> int:
        return partition_count(self._admin, topic)

    def cluster_id(self) -> str:
        try:
            return str(self._admin.list_topics(timeout=REQUEST_SECONDS).cluster_id)
        except KafkaException as error:
            raise unavailable(error) from error

    def trim(self, before: Mapping[tuple[str, int], int]) -> None:
        """Deletes what lies before the given offsets."""
        wanted = [
            TopicPartition(topic, partition, offset) for (topic, partition), offset in before.items() if offset > 0
        ]
        if wanted:
            for future in self._admin.delete_records(wanted, request_timeout=REQUEST_SECONDS).values():
                try:
                    future.result()
                except KafkaException as error:
                    raise unavailable(error) from error


def unavailable(error: KafkaException) -> Unavailable:
    reason = error.args[0]
    return Unavailable(
        f"Kafka: {reason.str() if isinstance(reason, KafkaError) else reason}.", remedy="Is the broker running?"
    )
