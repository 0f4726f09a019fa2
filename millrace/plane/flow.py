"""THE data path, top to bottom. raw-input -> judge -> validated-input / import-error -> sinks -> progress.

Each query has its own checkpoint and may run any batch again; identity and versions make that harmless."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace.deliver.couriers import Couriers
from millrace.deliver.tables import TableWriter
from millrace.exchange.mailboxes import Exchange
from millrace.failpoint import reach
from millrace.model.facts import Durable, to_dict
from millrace.plane.task import OUTPUT_DDL, JudgeChunks
from millrace.settings import KmsSettings, SparkSettings
from millrace.sink.contract import StagedGroup
from millrace.wire.client import Appender, Cluster, LogReader
from millrace.wire.envelope import pack, understood, unpack
from millrace.wire.java_options import java_options
from millrace.wire.offsets import end_offsets
from millrace.wire.topics import (
    IMPORT_ERROR,
    MAX_RECORD_BYTES,
    PROGRESS,
    RAW_INPUT,
    VALIDATED_INPUT,
    bulk_partitions,
    quick_partitions,
)

TELL_SECONDS = 150.0
Start = Callable[[], StreamingQuery]
POLL_RECORDS, POLL_SECONDS = 500, 1.0


@dataclass(frozen=True)
class Flow:
    """Everything the queries are made of."""

    spark: SparkSession
    cluster: Cluster
    exchange: Exchange
    settings: SparkSettings
    raw_partitions: int
    accepted: TableWriter
    rejected: TableWriter
    couriers: Couriers
    appender: Appender
    kms: KmsSettings

    def queries(self) -> dict[str, Start]:
        """Small imports and large ones are judged by queries of their own, so that neither waits for the other."""
        quick, bulk = quick_partitions(), bulk_partitions(self.raw_partitions)
        return {
            "validate-quick": lambda: self._validate("validate-quick", quick, self.settings.quick_chunks_per_batch),
            "validate-bulk": lambda: self._validate("validate-bulk", bulk, self.settings.bulk_chunks_per_batch),
            "sink-delta": lambda: self._sink("sink-delta", VALIDATED_INPUT, self.accepted),
            "sink-errors": lambda: self._sink("sink-errors", IMPORT_ERROR, self.rejected),
            **{f"sink-{kind}": partial(self._park, kind) for kind in self.exchange.sink_kinds.used()},
        }

    def _validate(self, name: str, partitions: list[int], chunks_per_batch: int) -> StreamingQuery:
        # 1. Chunks, as bytes, from this lane's partitions.
        chunks = self._read({"assign": orjson.dumps({RAW_INPUT: partitions}).decode()}, chunks_per_batch)
        # 2. Judged in the workers; what comes back are reports: which file holds which chunks' rows.
        reports = chunks.select("value").mapInArrow(JudgeChunks(self.exchange, name, self.kms), OUTPUT_DDL)
        # 3. Each report goes to the topic it names.
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return self._start(name, reports.writeStream.format("kafka").options(**self._client_options(), **_PRODUCER))

    def _sink(self, name: str, topic: str, tables: TableWriter) -> StreamingQuery:
        def deliver(batch: DataFrame, _batch_id: int) -> None:
            appended = []
            # 4. The reports of this batch, table by table: one commit each, or parked if the table takes nothing.
            for kept in tables.write(_groups(topic, batch)):
                # 5. Durable in the sink, and only then the fact. It names rows that this sink stored: a remote sink with the
                # same name reports through its courier.
                if kept:
                    fact = Durable(tables.sink, tuple(chunk for group in kept for chunk in group.chunks))
                    appended.append(self.appender.append(PROGRESS, tables.sink.encode(), pack(to_dict(fact)), 0))
            # 6. The batch is over when Kafka has every fact.
            for fact_appended in appended:
                fact_appended.result(TELL_SECONDS)
            reach("after_progress")

        reports = self._read({"subscribe": topic}, 2000).select("value")
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return self._start(name, reports.writeStream.foreachBatch(deliver))

    def _park(self, kind: str) -> StreamingQuery:
        """Every other kind of sink has offsets of its own, which never wait for a target: couriers deliver what is parked."""

        def park(batch: DataFrame, _batch_id: int) -> None:
            self.couriers.park(kind, _groups(VALIDATED_INPUT, batch))

        reports = self._read({"subscribe": VALIDATED_INPUT}, 2000).select("value")
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"sink-{kind}")
        return self._start(f"sink-{kind}", reports.writeStream.foreachBatch(park))

    def _read(self, which: dict[str, str], records_per_batch: int) -> DataFrame:
        options = {**self._client_options(), **_CONSUMER, **which, "maxOffsetsPerTrigger": str(records_per_batch)}
        return self.spark.readStream.format("kafka").options(**options).load()

    def _client_options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in java_options(self.cluster.client_config()).items()}

    def _start(self, name: str, writer: object) -> StreamingQuery:
        # Every look for new records costs the broker and the JVM time: only the queries of small imports look often.
        self.spark.conf.set("spark.sql.streaming.pollingDelay", "25ms" if name in _QUICK else "100ms")
        located = writer.queryName(name).option("checkpointLocation", str(self.exchange.places.checkpoint(name)))  # type: ignore[attr-defined]
        query: StreamingQuery = located.start()
        return query


def _groups(topic: str, batch: DataFrame) -> list[StagedGroup]:
    read = (_group_in(topic, row.value) for row in batch.collect())
    return [group for group in read if group is not None]


_QUICK = ("validate-quick", "sink-delta")
_CONSUMER = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    # Each task asks the broker for its range; without this it waits out the broker's 500 ms when the range is short.
    "kafka.fetch.max.wait.ms": "5",
    # Fetched records stay in the JVM until they are used. A larger record is still fetched, alone.
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
}
_PRODUCER = {"kafka.acks": "all", "kafka.linger.ms": "0", "kafka.max.request.size": str(MAX_RECORD_BYTES)}


def _group_in(topic: str, record: bytes) -> StagedGroup | None:
    return understood(topic, record, lambda value: StagedGroup.from_dict(unpack(bytes(value))))


def retained_groups(cluster: Cluster) -> Iterator[StagedGroup]:
    """All that `validated-input` holds now, the oldest first: it stops where the log ended when this was called."""
    ends = end_offsets(cluster, VALIDATED_INPUT)
    left = {partition: end for partition, (first, end) in ends.items() if end > first}
    reader = LogReader(cluster, VALIDATED_INPUT, {partition: first for partition, (first, _) in ends.items()})
    try:
        while left:
            for record in reader.poll(POLL_RECORDS, POLL_SECONDS):
                group = _group_in(VALIDATED_INPUT, record.value)
                if group is not None:
                    yield group
                if record.offset + 1 >= left.get(record.partition, 0):
                    left.pop(record.partition, None)
    finally:
        reader.close()
