"""Where the records of a topic lie: first and next offsets, and the offset at a given time."""

import time
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.wire.client import REQUEST_SECONDS, Cluster, open_consumer, partition_count, unavailable


def end_offsets(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition. Patient with a partition whose leader has only just been chosen."""
    deadline = time.monotonic() + REQUEST_SECONDS
    with closing(open_consumer(cluster, "offsets")) as consumer:
        known = partition_count(consumer, topic)
        return {number: _watermarks(consumer, TopicPartition(topic, number), deadline) for number in range(known)}


def _watermarks(consumer: Consumer, partition: TopicPartition, deadline: float) -> tuple[int, int]:
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=REQUEST_SECONDS)
            return low, high
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise unavailable(error) from error
            time.sleep(0.1)


def offsets_at(cluster: Cluster, topic: str, at_ms: int) -> dict[int, int]:
    """The first offset of each partition whose record is not older than the time; the next one where there is none."""
    with closing(open_consumer(cluster, "offsets")) as consumer:
        wanted = [TopicPartition(topic, number, at_ms) for number in range(partition_count(consumer, topic))]
        try:
            return {
                at.partition: at.offset if at.offset >= 0 else consumer.get_watermark_offsets(at, REQUEST_SECONDS)[1]
                for at in consumer.offsets_for_times(wanted, timeout=REQUEST_SECONDS)
            }
        except KafkaException as error:
            raise unavailable(error) from error
