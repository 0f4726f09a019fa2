"""10,000 declared tenants: how long `up` takes then, what it costs in memory, and what it adds to Kafka."""

import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from bench.figure import Figure, at_most
from bench.platform import BUILD
from bench.thousand_tables import partitions_in
from millrace.cli.child import running_platform
from millrace.client import Millrace

TENANTS, SUBMITTERS = 10_000, 16
SETTLE_SECONDS = 10.0


def run() -> list[Figure]:
    BUILD.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-home-", dir=BUILD))
    try:
        with running_platform(home, {}):
            pass
        # Both started on a home that was there before, so that only the tenants differ.
        with running_platform(home, {}) as running, Millrace.from_home(home) as connection:
            before, partitions = _memory_mb(running.process.pid), partitions_in(home)
            seconds = _declare(connection)
        with running_platform(home, {}) as running, Millrace.from_home(home) as connection:
            added = _memory_mb(running.process.pid) - before
            there = len(connection.tenants.list())
            more = partitions_in(home) - partitions
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if there != TENANTS:
        raise RuntimeError(f"{there} of {TENANTS} tenants are there.")
    return [
        at_most(
            "tenants_10000_up", running.startup_seconds, "s", 60.0, f"declared at {TENANTS / seconds:.0f} a second"
        ),
        at_most("tenants_10000_memory", added, "MB more", 200.0, f"all processes; without tenants {before:.0f} MB"),
        at_most("tenants_10000_partitions", more, "topics and partitions added", 0),
    ]


def _declare(connection: Millrace) -> float:
    begun = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(lambda number: connection.tenants.apply(f"tenant{number:05d}", {"priority": 1}), range(TENANTS)))
    return time.perf_counter() - begun


def _memory_mb(root: int) -> float:
    """What all processes of the platform hold once they have come to rest, pages they share counted once."""
    time.sleep(SETTLE_SECONDS)
    processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    return float(sum(process.memory_full_info().pss for process in processes) / 1e6)
