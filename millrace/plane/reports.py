"""All that `validated-input` holds now: groups of judged chunks, the oldest first."""

from collections.abc import Iterator

from millrace.sink.contract import StagedGroup
from millrace.wire.client import Cluster, LogReader
from millrace.wire.envelope import understood, unpack
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import VALIDATED_INPUT

POLL_RECORDS, POLL_SECONDS = 500, 1.0


def group_in(topic: str, record: bytes) -> StagedGroup | None:
    return understood(topic, record, lambda value: StagedGroup.from_dict(unpack(bytes(value))))


def retained_groups(cluster: Cluster) -> Iterator[StagedGroup]:
    """Stops where the log ended when this was called."""
    ends = end_offsets(cluster, VALIDATED_INPUT)
    left = {partition: end for partition, (first, end) in ends.items() if end > first}
    reader = LogReader(cluster, VALIDATED_INPUT, {partition: first for partition, (first, _) in ends.items()})
    try:
        while left:
            for record in reader.poll(POLL_RECORDS, POLL_SECONDS):
                group = group_in(VALIDATED_INPUT, record.value)
                if group is not None:
                    yield group
                if record.offset + 1 >= left.get(record.partition, 0):
                    left.pop(record.partition, None)
    finally:
        reader.close()
