"""Two sinks at once: Delta and PostgreSQL compared with PostgreSQL alone; the CPU of other pairs with the sum of both."""

import statistics
from collections.abc import Callable
from typing import Any

from bench.figure import Figure, at_most
from bench.platform import Bench
from bench.sinks import (
    ROWS,
    WARMING_ROWS,
    cassandra_sink,
    cpu_seconds,
    declare,
    postgres_sink,
    sinks_platform,
)
from tests.support.cassandra import cassandra
from tests.support.postgres import postgres

ROUNDS = 3
PAIR_ROWS = 200_000


def run() -> list[Figure]:
    return [*_delta_beside_postgres(), *_cpu_of_pairs()]


def _delta_beside_postgres() -> list[Figure]:
    alone, both = [], []
    with sinks_platform() as bench, postgres() as dsn:
        path = bench.data.rows(ROWS, 90_000_000)
        declare(bench, "warming", ["delta", postgres_sink(dsn)])
        bench.load(bench.data.rows(WARMING_ROWS, 80_000_000), "warming")
        for number in range(ROUNDS):
            declare(bench, f"alone{number}", [postgres_sink(dsn)])
            alone.append(bench.load(path, f"alone{number}"))
            declare(bench, f"both{number}", ["delta", postgres_sink(dsn)])
            both.append(bench.load(path, f"both{number}"))
    one, two = statistics.median(alone), statistics.median(both)
    note = f"{two:.1f} s compared with {one:.1f} s"
    return [at_most("sinks_delta_and_postgres", two / one, "of PostgreSQL alone", 1.25, note)]


def _cpu_of_pairs() -> list[Figure]:
    with sinks_platform() as bench, postgres() as dsn, cassandra() as port:
        kinds: dict[str, Callable[[], Any]] = {
            "delta": lambda: "delta",
            "postgres": lambda: postgres_sink(dsn),
            "cassandra": lambda: cassandra_sink(port),
        }
        declare(bench, "warming", [make() for make in kinds.values()])
        bench.load(bench.data.rows(WARMING_ROWS, 80_000_000), "warming")
        alone = {kind: _cpu(bench, [make()], f"alone_{kind}") for kind, make in kinds.items()}
        figures = []
        for first, second in (("delta", "cassandra"), ("postgres", "cassandra")):
            spent = _cpu(bench, [kinds[first](), kinds[second]()], f"{first}_{second}")
            note = f"{spent:.1f} CPU-seconds; alone {alone[first]:.1f} and {alone[second]:.1f}"
            share = spent / (alone[first] + alone[second])
            figures.append(at_most(f"sinks_{first}_and_{second}.cpu", share, "of the sum of both", 1.1, note))
    return figures


def _cpu(bench: Bench, sinks: list[Any], table: str) -> float:
    """Of the platform, without the servers it writes to."""
    declare(bench, table, sinks)
    pids = [bench.running.process.pid]
    before = cpu_seconds(pids)
    bench.load(bench.data.rows(PAIR_ROWS, 50_000_000), table)
    return cpu_seconds(pids) - before
