"""Twenty tenants import small files at once, alone and beside a table that nobody can write and that is sent files, too."""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figure import Figure, at_least, at_most
from bench.platform import Bench, bench_platform
from millrace.client import Submission
from millrace.exchange.home import Home

HEALTHY, SENDERS = 20, 4
ROWS, FILES = 100, 10
# In turn without and with the broken table: what the machine does besides meets both.
TURNS, IMPORTS_OF_EACH = 3, 5
BROKEN, TABLE = "client_broken", "small"
EVERY_SECONDS = 0.5


def run() -> list[Figure]:
    with bench_platform() as bench:
        tenants = [f"client_{number:02d}" for number in range(HEALTHY)]
        for tenant in (*tenants, BROKEN):
            bench.declare_tenant(tenant)
            bench.declare_table(TABLE, tenant)
            bench.load(_rows(bench, 0), TABLE, tenant)
        _ends(bench, tenants)
        alone: list[float] = []
        beside: list[float] = []
        entry = _next_entry(bench)
        for _ in range(TURNS):
            alone += _ends(bench, tenants)
            entry.write_bytes(b"not a Delta log\n")
            with _Sending(bench) as sending:
                beside += _ends(bench, tenants)
            entry.unlink()
            bench.connection.sinks.resume(BROKEN, TABLE, "delta")
            arrived = {bench.finished(one)["state"] for one in sending.begun} <= {"completed"}
            entry = _next_entry(bench)
            if not arrived:
                break
    was, became = statistics.median(alone), statistics.median(beside)
    slow_was, slow_became = (statistics.quantiles(some, n=20)[-1] for some in (alone, beside))
    note = f"median {became * 1000:.0f} ms, alone {was * 1000:.0f} ms; {len(beside)} imports of {ROWS} rows"
    slowest = f"{slow_became * 1000:.0f} ms, alone {slow_was * 1000:.0f} ms"
    return [
        at_most("broken_table_median", became / was, "of the time alone", 1.2, note),
        at_most("broken_table_p95", slow_became / slow_was, "of the time alone", 1.2, slowest),
        at_least("broken_table_mended", float(arrived), "of its imports completed", 1),
    ]


class _Sending:
    """Imports into the broken table, one after the other; none of them ends."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.begun: list[str] = []

    def __enter__(self) -> "_Sending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(60)

    def _send(self) -> None:
        while not self._enough.wait(EVERY_SECONDS):
            path = _rows(self._bench, len(self.begun))
            self.begun.append(self._bench.connection.imports.send_file(path, Submission(BROKEN, TABLE))["id"])


def _ends(bench: Bench, tenants: list[str]) -> list[float]:
    """Seconds from submission to END, of every import."""

    def load(number: int) -> float:
        return bench.load(_rows(bench, number), TABLE, tenants[number % len(tenants)])

    with ThreadPoolExecutor(SENDERS) as pool:
        return list(pool.map(load, range(IMPORTS_OF_EACH * len(tenants))))


def _rows(bench: Bench, number: int) -> Path:
    return bench.data.rows(ROWS, 500_000_000 + number % FILES * ROWS)


def _next_entry(bench: Bench) -> Path:
    """Where the next version of the table will be; whoever puts something else there breaks it."""
    log = Home(bench.running.home).table(BROKEN, TABLE) / "_delta_log"
    known, since = -1, time.monotonic()
    # What was sent before is all there once nothing has come for a while.
    while time.monotonic() - since < 1.0:
        newest = max(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())
        if newest != known:
            known, since = newest, time.monotonic()
        time.sleep(0.05)
    return log / f"{known + 1:020}.json"
