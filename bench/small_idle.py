"""100 rows on an idle platform: the median time from submission to END."""

import statistics

from bench.figure import Figure, at_most
from bench.platform import bench_platform

REPEATS = 20


def run() -> list[Figure]:
    with bench_platform() as bench:
        paths = [bench.data.rows(100, 200_000_000 + n * 100) for n in range(REPEATS)]
        bench.load(paths[0])
        seconds = [bench.load(path) for path in paths]
    return [at_most("small_idle", statistics.median(seconds), "s", 1.0, f"slowest of {REPEATS}: {max(seconds):.2f} s")]
