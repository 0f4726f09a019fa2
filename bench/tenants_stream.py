"""The stream manager: from the completion of a file in `out` to the END of its import on an idle platform; then a crowd."""

import statistics
import time
from collections.abc import Iterator
from datetime import datetime

from bench.figure import Figure, at_most
from bench.platform import TABLE, TENANT, Bench, bench_platform
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home

REPEATS, CROWD, ROWS = 20, 200, 100
DEADLINE_SECONDS = 120.0


def run() -> list[Figure]:
    with bench_platform() as bench:
        bench.connection.tenants.apply(TENANT, {"app": {"command": ["sleep", "1000000"], "mode": "stream"}})
        staging = Staging(Home(bench.running.home), TENANT)
        _wait_running(bench)
        texts = _pieces(bench)
        _finish(staging, "warm.csv", next(texts))
        _ended(bench, {"warm.csv"})
        seconds = []
        for number in range(1, REPEATS + 1):
            name = f"one-{number}.csv"
            finished = _finish(staging, name, next(texts))
            seconds.append(_ended(bench, {name})[name] - finished)
        crowd = [f"crowd-{number}.csv" for number in range(CROWD)]
        begun = time.time()
        for name, text in zip(crowd, texts, strict=True):
            _finish(staging, name, text)
        last = max(_ended(bench, set(crowd)).values()) - begun
    note = f"slowest of {REPEATS}: {max(seconds):.2f} s; {CROWD} files of {ROWS} rows at once: {last:.1f} s"
    return [at_most("file_in_out_to_end", statistics.median(seconds), "s", 3.0, note)]


def _pieces(bench: Bench) -> Iterator[str]:
    """The texts of the files."""
    header, *lines = bench.data.rows((1 + REPEATS + CROWD) * ROWS, 300_000_000).read_text().splitlines(keepends=True)
    for at in range(0, len(lines), ROWS):
        yield header + "".join(lines[at : at + ROWS])


def _finish(staging: Staging, name: str, text: str) -> float:
    """When the file was there, whole."""
    partial = staging.outbox / f".{name}"
    partial.write_text(text)
    partial.rename(staging.outbox / name)
    return time.time()


def _ended(bench: Bench, names: set[str]) -> dict[str, float]:
    """When the import of each ended; refuses any that is not complete."""
    ends = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < ends:
        found = bench.connection.imports.list(tenant=TENANT, table=TABLE, limit=2 * CROWD)
        over = {doc["file_name"]: doc for doc in found if doc["file_name"] in names and doc["ended_at"] is not None}
        if bad := [doc for doc in over.values() if doc["state"] != "completed"]:
            raise RuntimeError(f"{bad[0]['file_name']} is {bad[0]['state']}: {bad[0]['error']}")
        if over.keys() == names:
            return {name: datetime.fromisoformat(str(doc["ended_at"])).timestamp() for name, doc in over.items()}
        time.sleep(0.05)
    raise RuntimeError(f"Not all of {len(names)} files were imported in {DEADLINE_SECONDS:g} s.")


def _wait_running(bench: Bench) -> None:
    ends = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < ends:
        status = bench.connection.apps.show(TENANT)["status"]
        if status is not None and status["state"] == "running":
            return
        time.sleep(0.1)
    raise RuntimeError("The stream app did not start.")
