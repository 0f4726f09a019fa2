"""20,000 rows a second into Delta and PostgreSQL; PostgreSQL hangs for three minutes, then everything is there, exactly."""

import statistics
import threading
import time
from pathlib import Path

import psutil
import psycopg

from bench.figure import Figure, at_least, at_most
from bench.memory import peak_memory
from bench.platform import TENANT, Bench
from bench.sinks import begin_upload, declare, postgres_sink, sinks_platform
from millrace.exchange.home import Home
from millrace.lake.log import load
from millrace.lake.store import Store
from tests.support.postgres import postgres

RATE = 20_000
WINDOWS = 5
BEFORE_SECONDS, DEAD_SECONDS, DRAIN_SECONDS = 60.0, 180.0, 600.0
MOST_WORKER_MB = 400
TABLE = "steady"


def run() -> list[Figure]:
    with sinks_platform() as bench, postgres() as dsn:
        declare(bench, TABLE, ["delta", postgres_sink(dsn)])
        _file(bench, 0)
        with Load(bench) as steady, peak_memory(bench.running.process.pid) as peaks:
            time.sleep(10)
            before = _windows(bench, BEFORE_SECONDS)
            server = _server(dsn)
            _hang(server)
            dead = _windows(bench, DEAD_SECONDS)
            _wake(server)
        begun = time.perf_counter()
        states = steady.wait(DRAIN_SECONDS)
        drained = time.perf_counter() - begun
        exact = _in_postgres(dsn) == _in_delta(bench) == steady.rows and states == {"completed"}
    was, became = statistics.median(before), statistics.median(dead)
    note = f"{became:,.0f} rows/s, before {was:,.0f}; backlog drained {drained:.0f} s after the load's end"
    return [
        at_least("sink_dead", became / was, "of before", 0.9, note),
        at_least("sink_dead.rate", was, "rows/s before", 0.95 * RATE),
        at_least("sink_dead.exact", float(exact), "of the rows in both", 1, f"{steady.rows:,} rows; {states}"),
        at_most("sink_dead.python_worker", peaks["python_worker"], "MB", MOST_WORKER_MB),
    ]


class Load:
    """A file of a second's rows every second, each with keys of its own."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ended = threading.Event()
        self._ids: list[str] = []
        self._thread = threading.Thread(target=self._send, daemon=True)

    @property
    def rows(self) -> int:
        return RATE * len(self._ids)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1.0
            path = _file(self._bench, len(self._ids))
            self._ids.append(begin_upload(self._bench, path, TABLE))

    def wait(self, seconds: float) -> set[str]:
        deadline = time.monotonic() + seconds
        left = max(1.0, deadline - time.monotonic())
        return {self._bench.connection.imports.wait(one, timeout=left)["state"] for one in self._ids}


def _file(bench: Bench, number: int) -> Path:
    """Made before anything is measured: all of them when the first is asked for."""
    folder = bench.data.folder / f"steady-{RATE}"
    path = folder / f"{number}.csv"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _split(bench, folder)
    return path


def _split(bench: Bench, folder: Path) -> None:
    """One large file of the generator, cut into a file for each second."""
    seconds = int(BEFORE_SECONDS + DEAD_SECONDS) + 60
    with bench.data.rows(seconds * RATE, 40_000_000).open("rb") as source:
        header = source.readline()
        for number in range(seconds):
            with (folder / f"{number}.csv").open("wb") as target:
                target.write(header)
                for _ in range(RATE):
                    target.write(source.readline())


def _windows(bench: Bench, seconds: float) -> list[float]:
    """Rows that became visible in Delta per second, window by window."""
    rates, rows, at = [], _in_delta(bench), time.monotonic()
    for _ in range(WINDOWS):
        time.sleep(seconds / WINDOWS)
        now, found = time.monotonic(), _in_delta(bench)
        rates.append((found - rows) / (now - at))
        rows, at = found, now
    return rates


def _in_delta(bench: Bench) -> int:
    return load(Store(Home(bench.running.home).table(TENANT, TABLE))).live_rows


def _in_postgres(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f'SELECT count(*) FROM "{TENANT}"."{TABLE}"').fetchone()
    assert found is not None
    return int(found[0])


def _server(dsn: str) -> psutil.Process:
    """The process that all of the server's others are children of."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert found is not None
        server = psutil.Process(int(found[0])).parent()
    assert server is not None
    return server


def _hang(server: psutil.Process) -> None:
    for process in (server, *server.children()):
        process.suspend()


def _wake(server: psutil.Process) -> None:
    for process in (server, *server.children()):
        process.resume()
