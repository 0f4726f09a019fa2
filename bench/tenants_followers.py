"""What 500 followers of events cost the server, beside ops that come at a steady rate. Without a data plane."""

import os
import selectors
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from bench.figure import Figure, at_most
from bench.platform import BUILD
from tests.support.api_server import ApiServer, api_server
from tests.support.followers import EventFollower

FOLLOWERS, OPS_PER_SECOND, SECONDS = 500, 50, float(os.environ.get("BENCH_SECONDS", "20"))


def run() -> list[Figure]:
    BUILD.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-home-", dir=BUILD))
    try:
        with api_server(home) as server:
            server.client.tenants.apply("acme", {})
            _load(server, "warm")
            alone = _load(server, "alone")
            with ExitStack() as stack:
                reading = stack.enter_context(_Reading(server, FOLLOWERS))
                beside = _load(server, "beside")
            heard = reading.heard
    finally:
        shutil.rmtree(home, ignore_errors=True)
    cost = 100 * (beside - alone) / SECONDS
    note = f"{OPS_PER_SECOND} ops/s; server alone {100 * alone / SECONDS:.1f} %; each event reached {heard} followers"
    return [
        at_most("followers_500_cpu", cost, "% of a core", 5.0, note),
        at_most("followers_that_missed_events", FOLLOWERS - heard, f"of {FOLLOWERS}", 0),
    ]


def _load(server: ApiServer, name: str) -> float:
    """CPU seconds of the server while ops come."""
    begun, before = time.monotonic(), server.cpu_seconds()
    for number in range(int(OPS_PER_SECOND * SECONDS)):
        server.client.spans.begin("acme", f"{name}-{number}")
        time.sleep(max(0.0, begun + (number + 1) / OPS_PER_SECOND - time.monotonic()))
    return server.cpu_seconds() - before


class _Reading:
    """Followers that hear everything, read by one thread."""

    def __init__(self, server: ApiServer, count: int) -> None:
        last = server.client.events.page(newest=True, limit=1)["last"]
        self._followers = [EventFollower(server.url, server.token, last) for _ in range(count)]
        # What it costs to connect is not what it costs to follow.
        for follower in self._followers:
            follower.read_until(b"\r\n\r\n", 120)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.heard = 0

    def __enter__(self) -> "_Reading":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.wait(2.0)
        self._stopping.set()
        self._thread.join()
        last = f'"beside-{int(OPS_PER_SECOND * SECONDS) - 1}"'.encode()
        self.heard = sum(last in one.received and not one.is_over for one in self._followers)
        for follower in self._followers:
            follower.close()

    def _read(self) -> None:
        with selectors.DefaultSelector() as ready:
            for follower in self._followers:
                ready.register(follower.socket, selectors.EVENT_READ, follower)
            while not self._stopping.is_set():
                for key, _ in ready.select(0.5):
                    key.data.read_some()
                # Its processor time is not the server's: a page is full long before it matters.
                self._stopping.wait(0.05)
