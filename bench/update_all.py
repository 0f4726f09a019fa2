"""The same 5 M rows twice: how much longer it takes when every key is an update."""

from bench.data import ALL_ROWS
from bench.figure import Figure, at_most
from bench.platform import bench_platform


def run() -> list[Figure]:
    with bench_platform() as bench:
        path = bench.data.rows(ALL_ROWS)
        bench.load(bench.data.rows(1000, 90_000_000))
        first, second = bench.load(path), bench.load(path)
    return [at_most("update_all", second / first, "x the first load", 3.0, f"{first:.1f} s, then {second:.1f} s")]
