"""The REST API without Kafka and Spark in a process of its own, whose memory a test can measure. Chunks go nowhere.

`python -m tests.support.server_process HOME PORT LEASE_SECONDS` is the process; tests use `server_process`."""

import http.client
import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from millrace.embed.ports import free_ports
from millrace.settings import ApiSettings
from millrace.wire.client import Appended
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.processes import started
from tests.support.small_server import TOKEN
from tests.support.waiting import wait_until
from tests.support.whole_app import AppPlatform

START_SECONDS = 60.0
AUTH = {"Authorization": f"Bearer {TOKEN}"}
_MIB = 1 << 20


class TakingLog:
    """Confirms every chunk and keeps none."""

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class ReceivingPlatform(AppPlatform):
    appender, raw_partitions = TakingLog(), QUICK_PARTITIONS + 1


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
        for path, content in ((f"/v1/tenants/{tenant}", {}), (f"/v1/tenants/{tenant}/tables/{table}", document)):
            answer = self.ask("PUT", path, json.dumps(content), Content_Type="application/json")
            assert answer.status < 300, answer.text


@contextmanager
def server_process(home: Path, lease_seconds: int = 60) -> Iterator[ServerProcess]:
    home.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    argv = [sys.executable, "-m", "tests.support.server_process", str(home), str(port), str(lease_seconds)]
    with started(argv) as process:
        server = ServerProcess(psutil.Process(process.pid), port)
        wait_until(lambda: process.poll() is not None or _answers(server), START_SECONDS, "the server to answer")
        try:
            yield server
        finally:
            process.terminate()


def _answers(server: ServerProcess) -> bool:
    try:
        return server.ask("GET", "/v1/tenants", seconds=5.0).status == 200
    except OSError:
        return False


def main() -> None:
    from millrace.api.__main__ import serve  # noqa: PLC0415 (tests that only start the process need no server)
    from millrace.api.app import make_app  # noqa: PLC0415

    home, port, lease_seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    platform = ReceivingPlatform(home, ())
    platform.settings = platform.settings.model_copy(update={"api": ApiSettings(lease_seconds=lease_seconds)})
    serve(make_app(platform.running), "127.0.0.1", port)


if __name__ == "__main__":
    main()
