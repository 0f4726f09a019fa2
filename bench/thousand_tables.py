"""1,000 tables, one 100-row import each, submitted at once: imports a second through to END, on constant partitions."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.figure import Figure, at_least, at_most
from bench.platform import TENANT, Bench, bench_platform
from millrace.client import Submission

TABLES, SUBMITTERS = 1000, 32
DEADLINE_SECONDS = 300.0


def run() -> list[Figure]:
    with bench_platform() as bench, ThreadPoolExecutor(SUBMITTERS) as pool:
        path = bench.data.rows(100, 300_000_000)
        bench.load(path)
        before = partitions_in(bench.running.home)
        list(pool.map(lambda n: bench.declare_table(f"t{n}"), range(TABLES)))
        watch = _Watch(bench)
        begun = time.perf_counter()
        sent = set(pool.map(lambda n: _submit(bench, path, f"t{n}"), range(TABLES)))
        watch.wait_for(sent)
        seconds = time.perf_counter() - begun
        added = partitions_in(bench.running.home) - before
    return [
        at_least("thousand_tables", TABLES / seconds, "imports/s", 50, f"{seconds:.1f} s in all"),
        at_most("thousand_tables.partitions", added, "partitions added", 0),
    ]


def _submit(bench: Bench, path: Path, table: str) -> str:
    return bench.connection.imports.send_file(path, Submission(TENANT, table))["id"]


def partitions_in(home: Path) -> int:
    """The broker keeps one folder a partition."""
    return sum(1 for log in (home / "kafka").rglob("partition.metadata") if log.parent.name.startswith("millrace."))


class _Watch:
    """Hears of every END, so that waiting costs the platform nothing."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ended: dict[str, str] = {}
        self._heard = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for _, event in self._bench.connection.events.follow(after=0):
            state = event["type"].rpartition(".")[2]
            if state in ("completed", "failed", "cancelled"):
                with self._heard:
                    self._ended[event["subject"]] = state
                    self._heard.notify()

    def wait_for(self, imports: set[str]) -> None:
        with self._heard:
            if not self._heard.wait_for(lambda: imports <= self._ended.keys(), DEADLINE_SECONDS):
                raise RuntimeError(f"{len(imports - self._ended.keys())} imports did not end in {DEADLINE_SECONDS:g} s")
        wrong = [each for each in imports if self._ended[each] != "completed"]
        if wrong:
            raise RuntimeError(f"{len(wrong)} imports did not complete, {wrong[0]} {self._ended[wrong[0]]}")
