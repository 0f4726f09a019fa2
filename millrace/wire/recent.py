"""The newest raw chunks of some imports, as far as raw-input still holds them: found first, then read one by one.

Only looks: no position is kept and no group is joined. Memory is bounded by one fetch, whatever the log holds."""

import heapq
import time
from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import KafkaException, Message, TopicPartition

from millrace.wire.client import Cluster, open_consumer, unavailable
from millrace.wire.envelope import understood, unpack_stamp
from millrace.wire.offsets import end_offsets, offsets_at
from millrace.wire.topics import MAX_RECORD_BYTES, RAW_INPUT

FIND_SECONDS = 20.0
READ_SECONDS = 5.0
_QUIET_SECONDS = 0.5
_RECORDS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a chunk lies in raw-input; places are ordered as their chunks' versions are."""

    version: int
    partition: int
    offset: int


class RecentChunks:
    """Not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        kept = {"fetch.max.bytes": MAX_RECORD_BYTES, "queued.max.messages.kbytes": MAX_RECORD_BYTES >> 10}
        start = {"auto.offset.reset": "earliest"}
        self._consumer = open_consumer(cluster, "recent", **start, **{"fetch.wait.max.ms": 100}, **kept)

    def close(self) -> None:
        self._consumer.close()

    def find(
        self, import_ids: Collection[str], last: int, since_ms: int, seconds: float = FIND_SECONDS
    ) -> tuple[list[Place], bool]:
        """The last so many chunks of the imports in the order of their versions, and whether there was time to look at
        everything since `since_ms`."""
        deadline = time.monotonic() + seconds
        wanted = frozenset(import_ids)
        ends = {number: high for number, (_, high) in end_offsets(self._cluster, RAW_INPUT).items()}
        unread = {
            number: at for number, at in offsets_at(self._cluster, RAW_INPUT, since_ms).items() if at < ends[number]
        }
        newest: list[Place] = []
        self._consumer.assign([TopicPartition(RAW_INPUT, number, at) for number, at in unread.items()])
        while unread and time.monotonic() < deadline:
            messages = self._poll(_RECORDS_AT_ONCE, _QUIET_SECONDS)
            for message in messages:
                number, at = message.partition() or 0, message.offset() or 0
                if (place := _place(message, wanted)) is not None and at < ends[number]:
                    _keep(newest, place, last)
                unread[number] = at + 1
            if not messages:
                # What is trimmed while it is looked for never comes.
                lows = end_offsets(self._cluster, RAW_INPUT)
                unread = {number: max(at, lows[number][0]) for number, at in unread.items()}
            unread = {number: at for number, at in unread.items() if at < ends[number]}
        self._consumer.unassign()
        return sorted(newest), not unread

    def read(self, place: Place) -> bytes | None:
        """The record at a place; None if it has been trimmed meanwhile."""
        self._consumer.assign([TopicPartition(RAW_INPUT, place.partition, place.offset)])
        messages = self._poll(1, READ_SECONDS)
        self._consumer.unassign()
        return messages[0].value() if messages and messages[0].offset() == place.offset else None

    def _poll(self, limit: int, seconds: float) -> list[Message]:
        try:
            return [message for message in self._consumer.consume(limit, seconds) if message.error() is None]
        except KafkaException as error:
            raise unavailable(error) from error


def _place(message: Message, wanted: frozenset[str]) -> Place | None:
    header, _ = understood(RAW_INPUT, message.value() or b"", unpack_stamp) or (None, None)
    if header is None or header.import_id not in wanted:
        return None
    return Place(header.version, message.partition() or 0, message.offset() or 0)


def _keep(newest: list[Place], place: Place, last: int) -> None:
    if place in newest:
        return
    if len(newest) < last:
        heapq.heappush(newest, place)
    else:
        heapq.heappushpop(newest, place)
