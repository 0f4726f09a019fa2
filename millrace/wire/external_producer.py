"""Writes to somebody else's Kafka: records in one transaction, or none of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millrace.wire.external_kafka import (
    DELIVERY_SECONDS,
    FULL_SECONDS,
    REQUEST_SECONDS,
    NotTaken,
    OutwardCluster,
    translated,
)

# A transaction ends by itself when nobody has gone on with it for so long.
TRANSACTION_SECONDS = 120.0
QUEUE_RECORDS, QUEUE_BYTES = 50_000, 16 << 20


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
        with translated():
            self._producer.init_transactions(DELIVERY_SECONDS)

    def send(self, records: Iterable[OutRecord | OutBatch]) -> None:
        """All of them, or none: readers of committed records see them at once."""
        self._failed = None
        with translated():
            self._producer.begin_transaction()
        try:
            with translated():
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
            with translated():
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
        # Its connections end here, not when somebody collects garbage.
        del self._producer


def _again(message: dict[str, Any]) -> dict[str, Any]:
    """To be sent once more, unless it failed for more than a full queue."""
    error = message.get("_error")
    if error is not None and error.code() != KafkaError._QUEUE_FULL:
        raise KafkaException(error)
    return {"key": message["key"], "value": message["value"]}
