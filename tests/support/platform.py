"""A whole platform for a test: `millrace up` in a temporary home, with handles on its processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from millrace.client import FileOptions, Millrace, Submission
from millrace.exchange.home import Home
from millrace.wire.access import Account, as_account
from millrace.wire.client import Cluster
from tests.support.processes import end, leashed, stop
from tests.support.waiting import wait_until

READY_SECONDS = 120.0
END_SECONDS = 120.0
STOP_SECONDS = 60.0


class RunningPlatform:
    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home = Home(home)
        self._environ = {**os.environ, **environ, "MILLRACE_HOME": str(home)}
        self._log = home / "up.log"
        self.client: Millrace

    def start(self) -> None:
        logged = self.launch()
        try:
            wait_until(lambda: self._is_ready(logged), READY_SECONDS, "the platform to be ready")
        except BaseException:
            end(self.process, 0)
            raise
        self.client = Millrace.from_home(self.home.root, {})

    def launch(self) -> int:
        """Starts the process and does not wait; where its output begins in the log."""
        self.home.root.mkdir(parents=True, exist_ok=True)
        logged = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", "millrace.cli.main", "up", "--port", "0"]
            self.process = subprocess.Popen(leashed(argv), env=self._environ, stdout=log, stderr=subprocess.STDOUT)
        return logged

    def _is_ready(self, logged: int) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-3000:]
        return "ready http" in self._log.read_text()[logged:]

    def stop(self) -> None:
        self.client.close()
        stop(self.process, STOP_SECONDS)

    def cli(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, "-m", "millrace.cli.main", *words]
        ran = subprocess.run(argv, env=self._environ, input=stdin, capture_output=True, timeout=180, check=False)
        return subprocess.CompletedProcess(argv, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def part(self, name: str) -> psutil.Process:
        """A part, once it is running: kafka, server, data-plane, managers, or jvm (Spark's)."""
        found = wait_until(lambda: self._running(name), 60, f"{name} to run")
        assert found is not None
        return found

    def _running(self, name: str) -> psutil.Process | None:
        marks = {
            "kafka": "kafka.Kafka",
            "server": "millrace.api",
            "data-plane": "millrace.plane",
            "jvm": "SparkSubmit",
            "managers": "millrace.manage",
        }
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if marks[name] in " ".join(words) and "leash" not in " ".join(words[:5]):
                return process
        return None

    def workers(self) -> list[psutil.Process]:
        """The Python workers that Spark forked."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                parent = process.parent()
                if parent is not None and "millrace.plane.daemon" in " ".join(parent.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def declare(self, tenant: str, document: Mapping[str, Any]) -> str:
        """Applies a tenant with one table; the table as TENANT/TABLE."""
        self.client.tenants.apply(tenant, {"client": tenant})
        name = document.get("table", document["schema"]["name"])
        self.client.tables.apply(tenant, name, document)
        return f"{tenant}/{name}"

    def send(self, target: str, path: Path, **options: Any) -> dict[str, Any]:
        """Uploads a file and waits for the import's end."""
        tenant, table = target.split("/")
        named = ("idempotency_key", "kind", "span", "wait_turn")
        more = {name: options.pop(name) for name in named if name in options}
        begun = self.client.imports.send_file(path, Submission(tenant, table, FileOptions(**options), **more))
        return self.ended(begun["id"])

    @property
    def cluster(self) -> Cluster:
        """The platform's own broker, as its operator reaches it."""
        return self.cluster_as(Account.OPERATOR)

    def cluster_as(self, account: str) -> Cluster:
        ports = json.loads((self.home.broker / "ports.json").read_text())
        return as_account(Cluster(f"127.0.0.1:{ports['broker']}"), self.home.broker_passwords, account)

    def events(self, **of: str) -> list[dict[str, Any]]:
        """All of them, in order; `tenant=` for those of a tenant."""
        events: list[dict[str, Any]] = []
        after = 0
        while (page := self.client.json("GET", "/v1/events", params={**of, "after": after, "limit": 500}))["items"]:
            events += page["items"]
            after = page["last"]
        return events

    def ended(self, import_id: str, seconds: float = END_SECONDS) -> dict[str, Any]:
        """The import's document once it is over; patient with a platform that is being restarted."""
        document = self.client.imports.wait(import_id, timeout=seconds)
        assert document["state"] in ("completed", "failed", "cancelled"), f"not within {seconds:g} s: {document}"
        return dict(document)


@contextmanager
def running_platform(home: Path, **environ: str) -> Iterator[RunningPlatform]:
    platform = RunningPlatform(home, environ)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def record(name: str, *fields: tuple[str, Any], key: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A table's declaration."""
    schema = {"type": "record", "name": name, "fields": [{"name": column, "type": kind} for column, kind in fields]}
    return json.loads(json.dumps({"schema": schema, "primary_key": list(key), **more}))
