"""The REST API without Kafka and Spark in a process of its own, whose memory a test can measure. Chunks go nowhere.

`receiving_server` is what the process runs."""

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from millrace.embed.ports import free_ports
from tests.support.processes import started
from tests.support.small_server import TOKEN
from tests.support.waiting import wait_until

START_SECONDS = 60.0
LOOK_SECONDS = 0.01
AUTH = {"Authorization": f"Bearer {TOKEN}"}
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str

    @property
    def problem(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


@dataclass(frozen=True, slots=True)
class ServerProcess:
    process: psutil.Process
    port: int

    def resident_mb(self) -> float:
        return float(self.process.memory_info().rss / _MIB)

    def ask(self, method: str, path: str, body: Any = None, *, seconds: float = 60.0, **headers: str) -> Answer:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            said = {name.replace("_", "-"): value for name, value in headers.items()}
            link.request(method, path, body, {**AUTH, **said})
            response = link.getresponse()
            return Answer(response.status, response.read().decode())
        finally:
            link.close()

    def declare(self, tenant: str, table: str, document: dict[str, Any]) -> None:
        for path, content in (
            (f"/v1/tenants/{tenant}", {}),
            (f"/v1/tenants/{tenant}/tables/{table}?check=false", document),
        ):
            answer = self.ask("PUT", path, json.dumps(content), Content_Type="application/json")
            assert answer.status < 300, answer.text


@contextmanager
def server_process(home: Path, lease_seconds: int = 60) -> Iterator[ServerProcess]:
    home.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "tests.support.receiving_server", str(home), str(port), str(lease_seconds)]
    with started(argv) as process:
        server = ServerProcess(psutil.Process(process.pid), port)
        wait_until(lambda: process.poll() is not None or _answers(server), START_SECONDS, "the server to answer")
        try:
            yield server
        finally:
            process.terminate()


@contextmanager
def watched(server: ServerProcess) -> Iterator[list[float]]:
    """The most that the server's process takes meanwhile, in MiB."""
    most, over = [server.resident_mb()], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            most[0] = max(most[0], server.resident_mb())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()


def _answers(server: ServerProcess) -> bool:
    try:
        return server.ask("GET", "/v1/tenants", seconds=5.0).status == 200
    except OSError:
        return False
