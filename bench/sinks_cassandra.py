"""Rows into Cassandra, as a fraction of hand-written unlogged batches with the Python driver on the same machine."""

import statistics
import time
from pathlib import Path

import pyarrow.csv as pcsv
from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from bench.figure import Figure, at_least, at_most
from bench.memory import peak_memory
from bench.sinks import FIELDS, cassandra_sink, declare, sinks_platform
from tests.support.cassandra import cassandra

ROWS, WARMING_ROWS, ROUNDS = 400_000, 100_000, 3
ROWS_PER_BATCH, UNDER_WAY = 100, 48
MOST_WORKER_MB = 400
_TYPES = {"string": "text", "int": "bigint", "double": "double"}
# Kafka Connect with DataStax's sink on the same machine, CSV to table: 21,845 to 25,186 rows/s.
PEER = "Kafka Connect 0.022 to 0.025 M rows/s"


def run() -> list[Figure]:
    with sinks_platform() as bench, cassandra() as port:
        path = bench.data.rows(ROWS, 70_000_000)
        warming = bench.data.rows(WARMING_ROWS, 60_000_000)
        declare(bench, "warming", [cassandra_sink(port)])
        bench.load(warming, "warming")
        by_hand, ours = [], []
        with Cluster(["127.0.0.1"], port=port) as cluster, peak_memory(bench.running.process.pid) as peaks:
            hand = ByHand(cluster)
            hand.load(warming)
            for number in range(ROUNDS):
                by_hand.append(hand.load(path))
                declare(bench, f"kept{number}", [cassandra_sink(port)])
                ours.append(bench.load(path, f"kept{number}"))
    theirs, platform = statistics.median(by_hand), statistics.median(ours)
    note = f"{ROWS / platform / 1e6:.3f} M rows/s of {ROWS / theirs / 1e6:.3f} M rows/s by hand; {PEER}"
    return [
        at_least("sink_cassandra", theirs / platform, "of unlogged batches", 0.9, note),
        at_most("sink_cassandra.python_worker", peaks["python_worker"], "MB", MOST_WORKER_MB),
    ]


class ByHand:
    """What one would write: the file read with pyarrow, its rows grouped by partition, a hundred to a batch."""

    def __init__(self, cluster: Cluster) -> None:
        self._session = cluster.connect()
        self._session.default_timeout = 120
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.execute(f"CREATE KEYSPACE IF NOT EXISTS by_hand WITH replication = {replication}")
        columns = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in FIELDS)
        key = '"PROVINCECODE", "DEVICEID", "ONUID"'
        self._session.execute(f"CREATE TABLE IF NOT EXISTS by_hand.rows ({columns}, PRIMARY KEY ({key}))")
        names, marks = ", ".join(f'"{name}"' for name, _ in FIELDS), ", ".join("?" * len(FIELDS))
        self._insert = self._session.prepare(f"INSERT INTO by_hand.rows ({names}) VALUES ({marks}) USING TIMESTAMP ?")

    def load(self, path: Path) -> float:
        begun = time.perf_counter()
        options = pcsv.ConvertOptions(column_types={"PROVINCECODE": "string", "DEVICEID": "string", "TIME": "string"})
        table = pcsv.read_csv(path, convert_options=options).sort_by("PROVINCECODE")
        version = time.time_ns() // 1000
        batches, last = [], None
        for row in zip(*(table[name].to_pylist() for name, _ in FIELDS), strict=True):
            if row[0] != last or len(batches[-1]) >= ROWS_PER_BATCH:
                batches.append(BatchStatement(BatchType.UNLOGGED))
                last = row[0]
            batches[-1].add(self._insert, (*row, version))
        execute_concurrent(self._session, [(batch, None) for batch in batches], concurrency=UNDER_WAY)
        return time.perf_counter() - begun
