"""The same load with 4 raw-input partitions against 1."""

from bench.data import ALL_ROWS, WARMING_ROWS
from bench.figure import Figure, at_least
from bench.platform import bench_platform


def run() -> list[Figure]:
    one, four = _seconds(1), _seconds(4)
    return [at_least("partitions", one / four, "x faster", 1.5, f"{one:.1f} s with 1, {four:.1f} s with 4")]


def _seconds(partitions: int) -> float:
    with bench_platform(MILLRACE_KAFKA__RAW_PARTITIONS=str(partitions)) as bench:
        bench.load(bench.data.rows(WARMING_ROWS, 90_000_000))
        return bench.load(bench.data.rows(ALL_ROWS))
