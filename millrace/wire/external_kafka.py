"""Somebody else's Kafka as a place to write to: records in one transaction, or none of them; whole topics read back.

In go addresses that were judged, credentials and records; foreign errors leave as `NotTaken`, which keeps their name."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from millrace.model.errors import MillraceError

REQUEST_SECONDS = 10.0
REACH_SECONDS = 5.0
# A cluster that confirms nothing for so long is away; its transaction ends by itself when nobody has gone on with it.
DELIVERY_SECONDS, TRANSACTION_SECONDS = 60.0, 120.0
QUEUE_RECORDS, QUEUE_BYTES = 50_000, 16 << 20
FETCH_BYTES = 32 << 20
READ_RECORDS = 10_000
FULL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class OutRecord:
    """`partition` is left to the key where it is None."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class OutBatch:
    """Many records of one topic at once; they have no headers, because the client takes none this way."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class InRecord:
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


class NotTaken(MillraceError):
    """What the cluster said, by the name that Kafka gives the error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"Kafka: {message} ({name}).", code="not_taken")
        self.name = name

    @property
    def is_displaced(self) -> bool:
        """Another producer of the same name has taken over."""
        return self.name in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class OutwardCluster:
    """One cluster, asked with a client that connects to nothing but what it is told until `brokers` was read."""

    def __init__(self, config: Mapping[str, str | int | bool]) -> None:
        self.config: dict[str, str | int | float | bool] = {
            **config,
            "log_level": 2,
            "socket.connection.setup.timeout.ms": 10_000,
        }
        self._admin = AdminClient(self.config)
        self._partitions: dict[str, int] = {}

    def brokers(self) -> list[tuple[str, int]]:
        with _translated():
            found = self._admin.list_topics(timeout=REACH_SECONDS).brokers
        return [(str(broker.host), int(broker.port)) for broker in found.values()]

    def ensure(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        with _translated():
            if name not in self._admin.list_topics(timeout=REQUEST_SECONDS).topics:
                self._create(wanted)
        deadline = time.monotonic() + REQUEST_SECONDS
        while not self.partitions(name):
            if time.monotonic() > deadline:
                raise NotTaken("UNKNOWN_TOPIC_OR_PART", f"{name} does not appear")
            time.sleep(FULL_SECONDS)

    def _create(self, wanted: NewTopic) -> None:
        for future in self._admin.create_topics([wanted], request_timeout=REQUEST_SECONDS).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def delete(self, name: str) -> None:
        self._partitions.pop(name, None)
        with _translated():
            for future in self._admin.delete_topics([name], request_timeout=REQUEST_SECONDS).values():
                future.result()

    def partitions(self, name: str) -> int:
        """None of a topic that is not there. A number that was seen is not asked for again."""
        if name not in self._partitions:
            with _translated():
                metadata = self._admin.list_topics(name, timeout=REQUEST_SECONDS).topics[name]
            if metadata.error is not None:
                return 0
            self._partitions[name] = len(metadata.partitions)
        return self._partitions[name]

    def ends(self, topic: str, *, committed: bool) -> dict[int, int]:
        """Behind the last record of each partition, as readers of committed records, or of all, see it."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        last = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): last for number in range(self.partitions(topic))}
        with _translated():
            answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
            return {where.partition: int(answer.result().offset) for where, answer in answers.items()}

    def settle(self, topic: str) -> dict[int, int]:
        """Returns when readers of committed records see all that was there when it was called: the marks of a committed
        transaction come a moment after its confirmation."""
        ends = self.ends(topic, committed=False)
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            seen = self.ends(topic, committed=True)
            if all(seen.get(number, 0) >= end for number, end in ends.items()):
                return seen
            if time.monotonic() > deadline:
                raise NotTaken("_TIMED_OUT", f"{topic} has a transaction that does not end")
            time.sleep(FULL_SECONDS / 10)

    def read(self, topic: str, begin: Mapping[int, int] | None = None) -> Iterator[InRecord]:
        """Every committed record from the given offsets, else from the start, to what is the end now."""
        consumer = self._consumer()
        try:
            with _translated():
                yield from _read(consumer, topic, range(self.partitions(topic)), begin or {})
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self.config,
                "group.id": "millrace-sink",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.error.backoff.ms": 10,
                "fetch.message.max.bytes": FETCH_BYTES,
                "queued.max.messages.kbytes": FETCH_BYTES >> 10,
                "allow.auto.create.topics": False,
            }
        )


def _read(consumer: Consumer, topic: str, partitions: Sequence[int], begin: Mapping[int, int]) -> Iterator[InRecord]:
    consumer.assign([TopicPartition(topic, number, begin.get(number, OFFSET_BEGINNING)) for number in partitions])
    open_ends = set(partitions)
    deadline = time.monotonic() + DELIVERY_SECONDS
    while open_ends:
        for message in [*consumer.consume(1, 1.0), *consumer.consume(READ_RECORDS, 0.0)]:
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(int(message.partition() or 0))
            elif not error.retriable():
                raise KafkaException(error)
            deadline = time.monotonic() + DELIVERY_SECONDS
        if time.monotonic() > deadline:
            raise NotTaken("_TIMED_OUT", f"{topic} was not read to its end")


def _record(message: Message) -> InRecord:
    headers = message.headers()
    pairs: Iterable[tuple[str, bytes]] = headers if isinstance(headers, list) else ()  # type: ignore[assignment]
    return InRecord(message.key(), message.value(), dict(pairs))


class OutwardProducer:
    """The only writer under its name: whoever comes later with the same one displaces it."""

    def __init__(self, cluster: OutwardCluster, name: str, most_record_bytes: int) -> None:
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                **cluster.config,
                "transactional.id": name,
                "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
                "message.timeout.ms": int(DELIVERY_SECONDS * 1000),
                "message.max.bytes": most_record_bytes,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
                "delivery.report.only.error": True,
                "on_delivery": self._reported,
            }
        )
        with _translated():
            self._producer.init_transactions(DELIVERY_SECONDS)

    def send(self, records: Iterable[OutRecord | OutBatch]) -> None:
        """All of them, or none: readers of committed records see them at once."""
        self._failed = None
        with _translated():
            self._producer.begin_transaction()
        try:
            with _translated():
                for record in records:
                    if isinstance(record, OutBatch):
                        self._produce_batch(record)
                    else:
                        self._produce(record)
                # In short steps: whoever has a time budget for us can end the wait between two of them.
                while self._producer.flush(1.0):
                    self._raise_reported()
                self._raise_reported()
                self._producer.commit_transaction(DELIVERY_SECONDS)
        except BaseException:
            self._abort()
            raise

    def _produce(self, record: OutRecord) -> None:
        where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=list(record.headers), **where)
                return
            except BufferError:
                # The local queue is full: the cluster is the pace.
                self._producer.poll(FULL_SECONDS)
                self._raise_reported()

    def _produce_batch(self, batch: OutBatch) -> None:
        waiting = [{"key": key, "value": value} for key, value in zip(batch.keys, batch.values, strict=True)]
        while waiting:
            try:
                taken = self._producer.produce_batch(batch.topic, waiting)
            except BufferError:
                taken = 0
            if taken == len(waiting):
                return
            waiting = [_again(message) for message in waiting if taken == 0 or "_error" in message]
            self._producer.poll(FULL_SECONDS)
            self._raise_reported()

    def _abort(self) -> None:
        try:
            with _translated():
                self._producer.abort_transaction(REQUEST_SECONDS)
        except NotTaken:
            # A displaced producer, or one whose cluster is away, has nothing to take back: its transaction runs out.
            self._producer.purge()

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = self._failed or error

    def _raise_reported(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)


def _again(message: dict[str, Any]) -> dict[str, Any]:
    """To be sent once more, unless it failed for more than a full queue."""
    error = message.get("_error")
    if error is not None and error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return {"key": message["key"], "value": message["value"]}


class _translated:
    """Foreign errors as ours."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # While a fatal error is on its way to us, the client stumbles over reporting lesser ones.
        cause = error.__cause__ if isinstance(error, SystemError) else error
        if isinstance(cause, KafkaException):
            raise not_taken(cause) from error
        if isinstance(error, SystemError):
            # Over a fatal error it stumbles without a word. Nearly always the producer was displaced; a new one will tell.
            raise NotTaken("_FENCED", "the producer is no longer of use") from error


def not_taken(error: KafkaException) -> NotTaken:
    reason = error.args[0] if error.args else None
    if isinstance(reason, KafkaError):
        return NotTaken(str(reason.name()), reason.str())
    return NotTaken("_UNKNOWN", str(error))
