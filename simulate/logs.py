"""Logs as Kafka keeps them: records in partitions, each with its offset and the broker's time. Nothing is ever lost."""

from typing import Any, NamedTuple

OPS, RAW, VALIDATED, REJECTED, PROGRESS, EVENTS = "ops", "raw", "validated", "rejected", "progress", "events"
# Of raw-input the first partitions are the quick lane.
QUICK, RAW_PARTITIONS = 1, 3
PARTITIONS = {OPS: 2, RAW: RAW_PARTITIONS, VALIDATED: 2, REJECTED: 1, PROGRESS: 1, EVENTS: 2}


class Record(NamedTuple):
    partition: int
    offset: int
    at_us: int
    value: Any


class Logs:
    def __init__(self) -> None:
        self._records: dict[str, list[list[Record]]] = {
            name: [[] for _ in range(partitions)] for name, partitions in PARTITIONS.items()
        }
        # Of all partitions of a log together: whoever has seen so much has nothing to read.
        self.length = dict.fromkeys(PARTITIONS, 0)

    def append(self, log: str, partition: int, value: Any, at_us: int) -> int:
        records = self._records[log][partition]
        self.length[log] += 1
        records.append(Record(partition, len(records), at_us, value))
        return len(records) - 1

    def read(self, log: str, partition: int, start: int, end: int | None = None) -> list[Record]:
        return self._records[log][partition][start:end]

    def ends(self, log: str) -> dict[int, int]:
        return {partition: len(records) for partition, records in enumerate(self._records[log])}

    def every(self, log: str) -> list[Record]:
        """Partition after partition."""
        return [record for records in self._records[log] for record in records]
