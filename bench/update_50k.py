"""50 k updated keys, spread over a table of 10 M rows, against 50 k new ones."""

from bench.data import ALL_ROWS
from bench.figure import Figure, at_most
from bench.platform import bench_platform

KEYS, REPEATS = 50_000, 3


def run() -> list[Figure]:
    with bench_platform() as bench:
        loaded = [bench.data.rows(ALL_ROWS), bench.data.rows(ALL_ROWS, ALL_ROWS)]
        fresh = [bench.data.rows(KEYS, 100_000_000 + n * KEYS) for n in range(REPEATS)]
        updated = [bench.data.sampled(loaded, KEYS, n) for n in range(REPEATS)]
        for path in loaded:
            bench.load(path)
        new, update = bench.median_load(fresh), bench.median_load(updated)
    return [at_most("update_50k", update - new, "s beyond new keys", 1.0, f"new {new:.2f} s, updated {update:.2f} s")]
