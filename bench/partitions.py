"""The same load with 4 raw-input partitions against 1; then again with workers so slow that they alone are the limit.

The second tells what partitions give where there are cores for them: on two cores the rest of the platform needs one."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from bench.data import ALL_ROWS, WARMING_ROWS
from bench.figure import Figure, at_least
from bench.platform import Bench, bench_platform

TURN_SECONDS, TURNS = 0.01, 6
LOOK_SECONDS = 0.5


def run() -> list[Figure]:
    one, slow_one = _seconds(1)
    four, slow_four = _seconds(4)
    slow = f"{slow_one:.1f} s with 1, {slow_four:.1f} s with 4"
    return [
        at_least("partitions", one / four, "x faster", 1.5, f"{one:.1f} s with 1, {four:.1f} s with 4"),
        at_least("partitions.slow_workers", slow_one / slow_four, "x faster", 1.5, slow),
    ]


def _seconds(partitions: int) -> tuple[float, float]:
    """With workers as fast as they are, and with slow ones."""
    with bench_platform(MILLRACE_KAFKA__RAW_PARTITIONS=str(partitions)) as bench:
        bench.declare_table("again")
        bench.load(bench.data.rows(WARMING_ROWS, 90_000_000))
        path = bench.data.rows(ALL_ROWS)
        fast = bench.load(path)
        with _slow_workers(bench):
            return fast, bench.load(path, "again")


@contextmanager
def _slow_workers(bench: Bench) -> Iterator[None]:
    """Each of Spark's Python workers has a sixth of a core."""
    over = threading.Event()
    slowing = threading.Thread(target=_slow_down, args=(bench.running.process.pid, over))
    slowing.start()
    try:
        yield
    finally:
        over.set()
        slowing.join(30)


def _slow_down(platform: int, over: threading.Event) -> None:
    """By turns, so that those who work do not wait for each other's core."""
    workers: list[psutil.Process] = []
    looked = 0.0
    for turn in itertools.cycle(range(TURNS)):
        if time.monotonic() - looked > LOOK_SECONDS:
            workers, looked = _workers(platform), time.monotonic()
        for number, worker in enumerate(workers):
            with suppress(psutil.NoSuchProcess):
                worker.resume() if number % TURNS == turn else worker.suspend()
        if over.wait(TURN_SECONDS):
            break
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.resume()


def _workers(platform: int) -> list[psutil.Process]:
    """What was forked from Spark's daemon, and not the daemon, which forks."""
    family = psutil.Process(platform).children(recursive=True)
    forked = [process for process in family if _is_of_daemon(process)]
    return [process for process in forked if process.ppid() in {parent.pid for parent in forked}]


def _is_of_daemon(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return "millrace.plane.daemon" in process.cmdline()
    return False
