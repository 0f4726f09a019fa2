"""A 1-row import into another tenant's table while a 600 MB file loads: the median time to END."""

import statistics
import threading

from bench.figure import Figure, at_most
from bench.platform import bench_platform

WHALE_ROWS = 6_600_000


def run() -> list[Figure]:
    with bench_platform() as bench:
        whale, mouse = bench.data.rows(WHALE_ROWS), bench.data.rows(1, 95_000_000)
        bench.declare_tenant("client_m")
        bench.declare_table("small", "client_m")
        bench.load(mouse, "small", "client_m")
        loading = threading.Thread(target=bench.load, args=(whale,))
        loading.start()
        seconds: list[float] = []
        while loading.is_alive():
            seconds.append(bench.load(mouse, "small", "client_m"))
    median, worst = statistics.median(seconds), max(seconds)
    note = f"{len(seconds)} imports, slowest {worst:.2f} s, behind {whale.stat().st_size / 1e6:.0f} MB"
    return [at_most("mouse_behind_whale", median, "s", 1.5, note)]
