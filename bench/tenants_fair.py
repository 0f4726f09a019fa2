"""A whale and a mouse: 10 million rows of one tenant, alone and while another keeps importing 100 rows."""

import statistics
import threading
from pathlib import Path

from bench.data import WARMING_ROWS
from bench.figure import Figure, at_least, at_most
from bench.platform import Bench, bench_platform

WHALE_ROWS, MOUSE_ROWS = 10_000_000, 100
MOUSE, IDLE_REPEATS, MOST_MOUSE_FILES = "client_m", 9, 10


def run() -> list[Figure]:
    with bench_platform() as bench:
        whale = bench.data.rows(WHALE_ROWS)
        for number in range(MOST_MOUSE_FILES):
            _mouse_rows(bench, number)
        bench.declare_tenant(MOUSE)
        bench.declare_table("small", MOUSE)
        for table in ("alone", "beside"):
            bench.declare_table(table)
        bench.load(bench.data.rows(WARMING_ROWS, 90_000_000))
        _mouse(bench, 0)
        idle = statistics.median(_mouse(bench, number) for number in range(1, IDLE_REPEATS + 1))
        alone = bench.load(whale, "alone")
        beside, seconds = _beside(bench)
    speed, slowest = alone / beside, max(seconds)
    told = f"alone {WHALE_ROWS / alone:,.0f} rows/s, beside a mouse {WHALE_ROWS / beside:,.0f}"
    waited = (
        f"{len(seconds)} imports of {MOUSE_ROWS} rows, median {statistics.median(seconds):.2f} s, idle {idle:.2f} s"
    )
    return [
        at_most("mouse_beside_whale_over_idle", slowest - idle, "s", 2.0, f"the slowest of {waited}"),
        at_least("whale_beside_mouse_share", speed, "of its speed alone", 0.85, told),
    ]


def _beside(bench: Bench) -> tuple[float, list[float]]:
    """How long the whale takes, and each of the mouse's imports meanwhile."""
    took: list[float] = []
    loading = threading.Thread(target=lambda: took.append(bench.load(bench.data.rows(WHALE_ROWS), "beside")))
    loading.start()
    seconds: list[float] = []
    while loading.is_alive():
        seconds.append(_mouse(bench, 100 + len(seconds)))
    return took[0], seconds


def _mouse(bench: Bench, number: int) -> float:
    return bench.load(_mouse_rows(bench, number), "small", MOUSE)


def _mouse_rows(bench: Bench, number: int) -> Path:
    """The mouse repeats itself, so that nothing need be made while it is measured."""
    return bench.data.rows(MOUSE_ROWS, 300_000_000 + number % MOST_MOUSE_FILES * MOUSE_ROWS)
