"""Somebody else's Kafka: its topics, made and read to their ends. `external_producer` writes to them.

In go addresses of a relay and credentials; foreign errors leave as `NotTaken`, which keeps their name."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from millrace.model.errors import MillraceError

REQUEST_SECONDS = 10.0
REACH_SECONDS = 5.0
# A cluster that confirms nothing for so long is away.
DELIVERY_SECONDS = 60.0
FETCH_BYTES = 32 << 20
READ_RECORDS = 10_000
FULL_SECONDS = 0.05


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

    @property
    def is_unreached(self) -> bool:
        """A broker takes no connection, or says nothing."""
        return self.name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE")


class OutwardCluster:
    """One cluster, asked with a client that connects to whatever the cluster advertises: put a relay in front of it."""

    def __init__(self, config: Mapping[str, str | int | bool]) -> None:
        self.config: dict[str, str | int | float | bool] = {
            **config,
            "log_level": 2,
            "socket.connection.setup.timeout.ms": 10_000,
        }
        self._admin = AdminClient(self.config)
        self._partitions: dict[str, int] = {}

    def reach(self) -> None:
        """Asks which brokers there are."""
        with translated():
            self._admin.list_topics(timeout=REACH_SECONDS)

    def ensure(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        with translated():
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
        with translated():
            for future in self._admin.delete_topics([name], request_timeout=REQUEST_SECONDS).values():
                future.result()

    def partitions(self, name: str) -> int:
        """None of a topic that is not there. A number that was seen is not asked for again."""
        if name not in self._partitions:
            with translated():
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
        with translated():
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
            with translated():
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


@contextmanager
def translated() -> Iterator[None]:
    """Foreign errors as ours."""
    try:
        yield
    except KafkaException as error:
        raise not_taken(error) from error
    except SystemError as error:
        # While a fatal error is on its way to us, the client stumbles over reporting lesser ones.
        if isinstance(error.__cause__, KafkaException):
            raise not_taken(error.__cause__) from error
        # Over a fatal error it stumbles without a word. Nearly always the producer was displaced; a new one will tell.
        raise NotTaken("_FENCED", "the producer is no longer of use") from error


def not_taken(error: KafkaException) -> NotTaken:
    reason = error.args[0] if error.args else None
    if isinstance(reason, KafkaError):
        return NotTaken(str(reason.name()), reason.str())
    return NotTaken("_UNKNOWN", str(error))
