"""The catalogue of topics. Their number and their partitions depend on settings alone, never on tenants or tables (I7)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

PREFIX = "millrace."
TABLE_OPS = PREFIX + "table-ops"
RAW_INPUT = PREFIX + "raw-input"
VALIDATED_INPUT = PREFIX + "validated-input"
IMPORT_ERROR = PREFIX + "import-error"
PROGRESS = PREFIX + "progress"
EVENTS = PREFIX + "events"

# Imports of a single chunk travel in the first partitions of raw-input, so that they never queue behind a large file.
QUICK_PARTITIONS = 2
EVENT_PARTITIONS = 2
MAX_RECORD_BYTES = 12 << 20
DAY_MS = 86_400_000
# What the broker itself would delete, read or not.
DATA_KEPT_MS = 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


def catalogue(bulk_partitions: int, replication: int = 1) -> tuple[Topic, ...]:
    """Every topic of a cell. Data topics are trimmed behind the checkpoints; their retention is only a safety net."""
    durable = {"min.insync.replicas": "2" if replication > 2 else "1", "max.message.bytes": str(MAX_RECORD_BYTES)}
    data = {
        **durable,
        "retention.ms": str(DATA_KEPT_MS),
        "segment.bytes": str(256 << 20),
        "compression.type": "producer",
    }
    kept = {**durable, "retention.ms": "-1", "segment.bytes": str(64 << 20)}
    return (
        Topic(TABLE_OPS, 4, {**kept, "message.timestamp.type": "LogAppendTime"}),
        Topic(RAW_INPUT, QUICK_PARTITIONS + bulk_partitions, data),
        Topic(VALIDATED_INPUT, 2, data),
        Topic(IMPORT_ERROR, 2, data),
        # One partition: a checkpoint announced there follows every fact of the batches it covers.
        Topic(PROGRESS, 1, {**data, "segment.bytes": str(64 << 20)}),
        Topic(EVENTS, EVENT_PARTITIONS, {**durable, "retention.ms": str(7 * DAY_MS), "segment.bytes": str(64 << 20)}),
    )


def tenant_partition(tenant: str, partitions: int) -> int:
    """Of a topic in which everything about a tenant is in one order."""
    return crc32(tenant.encode()) % partitions


def chunk_partition(import_id: str, number: int, partitions: Sequence[int]) -> int:
    """The chunks of an import take turns; imports begin at different partitions."""
    return partitions[(crc32(import_id.encode()) + number) % len(partitions)]


def quick_partitions() -> list[int]:
    return list(range(QUICK_PARTITIONS))


def bulk_partitions(total: int) -> list[int]:
    return list(range(QUICK_PARTITIONS, total))
