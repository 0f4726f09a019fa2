"""The longest time in which the server's event loop does not get on, while twenty clients ask for all it does."""

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from bench.figure import Figure, at_most
from bench.platform import TABLE, TENANT, Bench, bench_platform
from millrace.priority import yield_to_others
from tests.support.followers import EventFollower

SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
# The metric is the worst of the last minute.
FORGOTTEN_SECONDS = 75.0
# Real clients use other cores than the server.
CLIENTS_NICE = 10
QUERIERS, LOOKERS, UPLOADERS, FOLLOWERS, DECLARERS = 4, 6, 5, 3, 2
METRIC = re.compile(r"^millrace_event_loop_stall_seconds_max ([0-9.e+-]+)$", re.MULTILINE)


def run() -> list[Figure]:
    with bench_platform() as bench:
        yield_to_others(CLIENTS_NICE)
        bench.load(bench.data.rows(100_000, 90_000_000))
        load = _Load(bench)
        load.go(5.0)
        time.sleep(FORGOTTEN_SECONDS)
        idle = _stall(bench)
        load.asked.clear()
        load.go(SECONDS)
        stall = _stall(bench)
    asked = ", ".join(f"{count} {what}" for what, count in sorted(load.asked.items()))
    note = f"{SECONDS:g} s of load; idle {idle * 1000:.0f} ms; {asked}"
    return [at_most("event_loop_stall", stall * 1000, "ms", 50, note)]


def _stall(bench: Bench) -> float:
    text = httpx2.get(f"{bench.connection.endpoint.url}/metrics", trust_env=False).text
    found = METRIC.search(text)
    if found is None:
        raise RuntimeError("The server does not measure its stalls.")
    return float(found[1])


class _Load:
    """Clients that ask one thing after the other."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._rows = bench.data.rows(1000, 300_000_000).read_bytes()
        self.asked: Counter[str] = Counter()

    def go(self, seconds: float) -> None:
        self._enough = threading.Event()
        clients = (
            [self._query] * QUERIERS + [self._look] * LOOKERS + [self._upload] * UPLOADERS + [self._declare] * DECLARERS
        )
        with ThreadPoolExecutor(len(clients) + FOLLOWERS) as pool:
            running = [pool.submit(self._repeat, ask, number) for number, ask in enumerate(clients)]
            running += [pool.submit(self._follow) for _ in range(FOLLOWERS)]
            time.sleep(seconds)
            self._enough.set()
            for one in running:
                one.result()

    def _repeat(self, ask: Callable[[httpx2.Client, int], httpx2.Response], number: int) -> None:
        endpoint = self._bench.connection.endpoint
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        with httpx2.Client(base_url=endpoint.url, headers=headers, timeout=60, trust_env=False) as client:
            while not self._enough.is_set():
                answer = ask(client, number)
                if answer.status_code >= 500:
                    raise RuntimeError(f"{ask.__name__}: {answer.text}")
                self.asked[ask.__name__.strip("_")] += 1
                if answer.status_code == 429:
                    self._enough.wait(float(answer.headers["Retry-After"]))

    def _query(self, client: httpx2.Client, _number: int) -> httpx2.Response:
        return client.post("/v1/query", json={"sql": f"select count(*), avg(SPEEDIN) from {TENANT}.{TABLE}"})

    def _look(self, client: httpx2.Client, number: int) -> httpx2.Response:
        paths = ("/v1/imports", f"/v1/tenants/{TENANT}/tables", "/v1/events?newest=true", "/v1/health")
        return client.get(paths[number % len(paths)])

    def _upload(self, client: httpx2.Client, _number: int) -> httpx2.Response:
        return client.post(f"/v1/tenants/{TENANT}/tables/{TABLE}/imports?format=csv", content=self._rows)

    def _declare(self, client: httpx2.Client, number: int) -> httpx2.Response:
        fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
        schema = {"type": "record", "name": f"t{number}", "fields": fields}
        wanted = {"schema": schema, "primary_key": ["id"], "description": f"at {time.time()}"}
        return client.put(f"/v1/tenants/{TENANT}/tables/t{number}", json=wanted)

    def _follow(self) -> None:
        endpoint = self._bench.connection.endpoint
        follower = EventFollower(endpoint.url, endpoint.token)
        while not self._enough.is_set():
            follower.read_some()
            follower.received = b""
            self.asked["pieces of events"] += 1
        follower.close()
