"""`millrace up` in an empty home, caches warm, until it is ready."""

from bench.figure import Figure, at_most
from bench.platform import bench_platform


def run() -> list[Figure]:
    with bench_platform() as bench:
        return [at_most("up", bench.running.startup_seconds, "s", 30.0)]
