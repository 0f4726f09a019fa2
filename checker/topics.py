"""Reading topics: a tail that follows all of them while the run lasts, and full readings afterwards."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from checker.dump import RECORDS
from checker.oplog import EVENTS, PROGRESS, RAW_INPUT, TABLE_OPS, TAIL
from checker.wireformat import open_chunk

KEPT_WHOLE = (TABLE_OPS, EVENTS, PROGRESS)
FLUSH_RECORDS = 4000
FLUSH_SECONDS = 10.0
BATCH = 200
PATIENCE_SECONDS = 60.0


class Reading:
    """One reader of every topic; records go to Parquet files in the dump."""

    def __init__(self, login: Mapping[str, str], canaries: Mapping[str, str], folder: Path, reader: str) -> None:
        self._canaries = {tenant: canary.encode() for tenant, canary in canaries.items()}
        self._folder, self._reader = folder, reader
        folder.mkdir(parents=True, exist_ok=True)
        self._held: list[tuple[object, ...]] = []
        self._part, self._flushed = 0, time.monotonic()
        self.next: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                **login,
                "group.id": f"checker-{reader}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": 16 << 20,
                "queued.max.messages.kbytes": 32 << 10,
                "allow.auto.create.topics": False,
                "log_level": 0,
            }
        )
        self._partitions = self._all_partitions()
        self._consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in self._partitions])

    def _all_partitions(self) -> list[tuple[str, int]]:
        topics = self._consumer.list_topics(timeout=PATIENCE_SECONDS).topics.items()
        return [(name, number) for name, topic in topics if not name.startswith("_") for number in topic.partitions]

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """The first and the next offset of every partition."""
        return {
            (topic, partition): self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            for topic, partition in self._partitions
        }

    def follow(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._take(0.3)

    def read_to_end(self) -> None:
        """Until every partition was read to where it ended when this was called."""
        ends = self.ends()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(self.next.get(place, low) < high for place, (low, high) in ends.items() if high > low):
            if self._take(0.3):
                deadline = time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() > deadline:
                raise RuntimeError(f"topics cannot be read to their end: {ends}, read {self.next}")

    def _take(self, seconds: float) -> int:
        try:
            messages = self._consumer.consume(BATCH, seconds)
        except KafkaException:
            return 0
        for message in messages:
            if message.error() is None:
                self._keep(message)
        if len(self._held) >= FLUSH_RECORDS or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()
        return len(messages)

    def _keep(self, message: Message) -> None:
        topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
        value = message.value() or b""
        text, searched = _text(topic, value)
        seen = [tenant for tenant, canary in self._canaries.items() if canary in searched]
        key = (message.key() or b"").decode("utf-8", "replace")
        digest = hashlib.sha256(value).hexdigest()[:24]
        self._held.append((self._reader, topic, partition, offset, message.timestamp()[1], key, digest, text, seen))
        self.next[topic, partition] = offset + 1

    def flush(self) -> None:
        self._flushed = time.monotonic()
        if self._held:
            frame = pl.DataFrame(self._held, schema=RECORDS, orient="row")
            frame.write_parquet(self._folder / f"{self._reader}-{self._part:05d}.parquet")
            self._part += 1
            self._held.clear()

    def close(self) -> None:
        self.flush()
        self._consumer.close()


def _text(topic: str, value: bytes) -> tuple[str | None, bytes]:
    """What is kept of a record, and the bytes to search for canaries."""
    if topic.endswith(RAW_INPUT):
        stamp, plain = open_chunk(value)
        return json.dumps(stamp), plain
    return (value.decode("utf-8", "replace") if topic.endswith(KEPT_WHOLE) else None), value


def start_tail(
    login: Mapping[str, str], canaries: Mapping[str, str], folder: Path, stopping: threading.Event
) -> Callable[[], None]:
    """Follows the topics in a thread; the answer reads the rest and ends it."""
    reading = Reading(login, canaries, folder, TAIL)
    thread = threading.Thread(target=reading.follow, args=(stopping,), name="tail", daemon=True)
    thread.start()

    def finish() -> None:
        stopping.set()
        thread.join(120)
        reading.read_to_end()
        reading.close()

    return finish
