"""A normal tenant's imports of 100 rows beside a tenant that asks for too much: the median time to END, compared with idle.

The noisy tenant has the default limits and a token of its own. `BENCH_SECONDS` says for how long it prepares its backlog."""

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bench.data import WARMING_ROWS
from bench.figure import Figure, at_most
from bench.platform import TABLE, Bench, bench_platform
from millrace.client import Submission
from millrace.model.frames import pack_frame

CALM, NOISY = "client_calm", "client_noisy"
BACKLOG_SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))
MOST_TINY, POSTERS = 200_000, 8
SENDERS, QUERIERS, REJECTS = 1000, 20, 1_000_000
IDLE_REPEATS, REPEATS = 15, 15
CALM_ROWS, FILES = 100, 10
QUIET_SECONDS = 600.0
ROWS_TABLE = "streamed"

# What the noisy tenant does while the block runs; then what it did, in words.
Noise = Callable[[Bench, str], Any]


def run() -> list[Figure]:
    with bench_platform() as bench:
        token = _prepare(bench)
        idle = statistics.median(_ends(bench, IDLE_REPEATS))
        return [_beside(bench, token, name, noise, idle) for name, noise in NOISES.items() if _is_wanted(name)]


def _is_wanted(name: str) -> bool:
    wanted = os.environ.get("BENCH_NOISE")
    return wanted is None or name in wanted.split(",")


def _prepare(bench: Bench) -> str:
    for tenant in (CALM, NOISY):
        bench.declare_tenant(tenant)
        bench.declare_table(TABLE, tenant)
    schema = {"type": "record", "name": ROWS_TABLE, "fields": [{"name": "id", "type": "long"}]}
    bench.connection.tables.apply(NOISY, ROWS_TABLE, {"schema": schema, "primary_key": ["id"]})
    bench.load(bench.data.rows(WARMING_ROWS, 90_000_000), TABLE, NOISY)
    bench.data.spoiled(REJECTS, 0)
    _ends(bench, 5)
    token: str = bench.connection.tokens.create("noisy", tenant=NOISY)["token"]
    return token


def _beside(bench: Bench, token: str, name: str, noise: Noise, idle: float) -> Figure:
    with noise(bench, token) as told:
        seconds = _ends(bench, REPEATS)
    _wait_until_quiet(bench)
    median = statistics.median(seconds)
    note = f"{median:.2f} s, idle {idle:.2f} s, slowest {max(seconds):.2f} s; {told()}"
    return at_most(f"noisy_{name}", median / idle, "of the time idle", 2.0, note)


def _ends(bench: Bench, count: int) -> list[float]:
    """Seconds from submission to END, of each import of the calm tenant."""
    return [bench.load(_rows(bench, number), TABLE, CALM) for number in range(count)]


def _rows(bench: Bench, number: int) -> Path:
    return bench.data.rows(CALM_ROWS, 500_000_000 + number % FILES * CALM_ROWS)


def _wait_until_quiet(bench: Bench) -> None:
    """What one noise left must not meet the next."""
    ends = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < ends:
        if bench.connection.usage.show(NOISY, days=1)["lag"]["open_imports"] == 0:
            return
        time.sleep(1.0)
    raise RuntimeError(f"The noisy tenant's imports have not ended after {QUIET_SECONDS:g} s.")


def _client(bench: Bench, token: str) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.Client(base_url=bench.connection.endpoint.url, headers=headers, timeout=120, trust_env=False)


class _Crowd:
    """Threads that ask again and again. A refusal that says when to come back is heeded."""

    def __init__(
        self, bench: Bench, token: str, size: int, ask: Callable[[httpx2.Client, int], httpx2.Response]
    ) -> None:
        self._bench, self._token, self._ask = bench, token, ask
        self._enough = threading.Event()
        self._pool = ThreadPoolExecutor(size)
        self._size = size
        self.served = self.refused = 0

    def __enter__(self) -> "_Crowd":
        for number in range(self._size):
            self._pool.submit(self._repeat, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._pool.shutdown()

    def _repeat(self, number: int) -> None:
        with _client(self._bench, self._token) as client:
            while not self._enough.is_set() and self.served < MOST_TINY:
                answer = self._ask(client, number)
                if answer.status_code == 429:
                    self.refused += 1
                    self._enough.wait(float(answer.headers["Retry-After"]))
                else:
                    self.served += answer.status_code < 400


@contextmanager
def _tiny_imports(bench: Bench, token: str) -> Iterator[Callable[[], str]]:
    """A backlog of imports of one row; more come while the calm tenant is measured."""
    row, at = bench.data.rows(1, 95_000_000).read_bytes(), f"/v1/tenants/{NOISY}/tables/{TABLE}/imports?format=csv"
    with _Crowd(bench, token, POSTERS, lambda client, _: client.post(at, content=row)) as crowd:
        time.sleep(BACKLOG_SECONDS)
        waiting = bench.connection.usage.show(NOISY, days=1)["lag"]["open_imports"]
        yield lambda: f"{crowd.served:,} imports of 1 row, {waiting:,} of them open at first, {crowd.refused:,} refused"


@contextmanager
def _row_senders(bench: Bench, token: str) -> Iterator[Callable[[], str]]:
    """Each tries to connect until it may, and then sends ten rows a second."""
    counts = {"connected": 0, "refused": 0, "rows": 0}
    url = f"ws{bench.connection.endpoint.url.removeprefix('http')}/v1/tenants/{NOISY}/tables/{ROWS_TABLE}/stream"

    async def send(number: int) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        while True:
            try:
                async with connect(
                    f"{url}?stream=s{number}", additional_headers=headers, compression=None, proxy=None
                ) as link:
                    counts["connected"] += 1
                    await _pour(link, number, counts)
            except InvalidStatus as refused:
                counts["refused"] += 1
                await asyncio.sleep(float(refused.response.headers.get("Retry-After", "1")))
            except (OSError, ConnectionClosed, TimeoutError):
                await asyncio.sleep(1.0)

    async def all_of_them(enough: threading.Event) -> None:
        tasks = [asyncio.create_task(send(number)) for number in range(SENDERS)]
        while not enough.is_set():
            await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    enough = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(all_of_them(enough)))
    thread.start()
    try:
        time.sleep(10.0)
        yield lambda: f"{SENDERS} senders: {', '.join(f'{count:,} {what}' for what, count in counts.items())}"
    finally:
        enough.set()
        thread.join(60)


async def _pour(link: Any, number: int, counts: dict[str, int]) -> None:
    seq = int(orjson.loads(await link.recv())["seq"]) + 1

    async def drain() -> None:
        async for _ in link:
            pass

    draining = asyncio.create_task(drain())
    try:
        while True:
            rows = b"".join(b'{"id":%d}\n' % (number * 1_000_000 + seq + more) for more in range(10))
            await link.send(pack_frame(seq, rows))
            seq += 10
            counts["rows"] += 10
            await asyncio.sleep(1.0)
    finally:
        draining.cancel()


@contextmanager
def _endless_queries(bench: Bench, token: str) -> Iterator[Callable[[], str]]:
    sql = f"select DEVICEID, count(*), avg(SPEEDIN) from {NOISY}.{TABLE} group by 1 order by 2 limit 10"
    with _Crowd(bench, token, QUERIERS, lambda client, _: client.post("/v1/query", json={"sql": sql})) as crowd:
        time.sleep(5.0)
        yield lambda: f"{QUERIERS} clients: {crowd.served:,} queries, {crowd.refused:,} refused"


@contextmanager
def _rejects(bench: Bench, token: str) -> Iterator[Callable[[], str]]:
    """Files of a million rejected rows, one after the other."""
    path, enough, sent = bench.data.spoiled(REJECTS, 0), threading.Event(), [0]

    def send() -> None:
        while not enough.is_set():
            begun = bench.connection.imports.send_file(path, Submission(NOISY, TABLE))["id"]
            sent[0] += 1
            bench.finished(begun)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        time.sleep(2.0)
        yield lambda: f"{sent[0]} files of {REJECTS:,} rejected rows"
    finally:
        enough.set()
        thread.join(600)


NOISES: dict[str, Noise] = {
    "tiny_imports": _tiny_imports,
    "row_senders": _row_senders,
    "queries": _endless_queries,
    "rejects": _rejects,
}
