"""Peak memory of every process while a 5 GB file streams through."""

from bench.figure import Figure
from bench.memory import peak_memory
from bench.platform import bench_platform


def run() -> list[Figure]:
    with bench_platform() as bench:
        path = bench.data.large(5_000_000_000)
        with peak_memory(bench.running.process.pid) as peaks:
            bench.load(path)
    return peaks.figures("memory_5gb")
