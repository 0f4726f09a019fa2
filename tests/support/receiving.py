"""The whole API with a log that takes chunks at once, without Kafka."""

from concurrent.futures import Future

from millrace.wire.client import Appended
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.whole_app import AppPlatform


class TakingLog:
    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class TakingPlatform(AppPlatform):
    appender, raw_partitions = TakingLog(), QUICK_PARTITIONS + 1
