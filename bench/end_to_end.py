"""5 M rows of CSV, from the file to durable in Delta, as a fraction of what pyarrow alone reaches."""

from bench.data import ALL_ROWS, WARMING_ROWS, limit_rows_per_second
from bench.figure import Figure, at_least
from bench.platform import bench_platform


def run() -> list[Figure]:
    with bench_platform() as bench:
        path = bench.data.rows(ALL_ROWS)
        bench.load(bench.data.rows(WARMING_ROWS, 90_000_000))
        rate = ALL_ROWS / bench.load(path)
        limit = limit_rows_per_second(path)
    note = f"{rate / 1e6:.3f} M rows/s of {limit / 1e6:.3f} M rows/s"
    return [at_least("end_to_end", rate / limit, "of the limit", 0.30, note)]
