"""A platform of the checker's own: `millrace up` in a home of its own, seen from outside as processes, files and a URL."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2
import psutil

READY_SECONDS = 180.0
STOP_SECONDS = 60.0
BLOCK = 512
MARKS = {"broker": "kafka.Kafka", "server": "millrace.api", "driver": "millrace.plane", "jvm": "SparkSubmit"}
WORKER_PARENT = "millrace.plane.daemon"


class Platform:
    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home = home
        self._environ = {**os.environ, **environ, "MILLRACE_HOME": str(home)}
        self._log = home / "up.log"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        said = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", "millrace.cli.main", "up", "--port", "0"]
            self._process = subprocess.Popen(argv, env=self._environ, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + READY_SECONDS
        while "ready http://" not in self._log.read_text()[said:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the platform does not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def is_healthy(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/v1/health", timeout=5).status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "client.json").read_text())["url"])

    @property
    def token(self) -> str:
        return str(json.loads((self.home / "client.json").read_text())["token"])

    @property
    def broker_port(self) -> int:
        return int(json.loads((self.home / "kafka" / "ports.json").read_text())["broker"])

    @property
    def kafka_login(self) -> dict[str, str]:
        """The operator's account, which may read every topic."""
        password = (self.home / "kafka-passwords" / "operator").read_text()
        account = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "operator", "sasl.password": password}
        return {"bootstrap.servers": f"127.0.0.1:{self.broker_port}", "security.protocol": "SASL_PLAINTEXT", **account}

    def processes(self, part: str) -> list[psutil.Process]:
        """The processes of a part: broker, server, driver, jvm, or worker (those that Spark forked)."""
        return [process for process in self._descendants() if _is_of(process, part)]

    def _descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def disk_bytes(self) -> int:
        """What is used on the disk; a file with holes may say that it is larger."""
        return sum(_size(Path(folder) / name) for folder, _, names in os.walk(self.home) for name in names)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * BLOCK
    except OSError:
        return 0


def _is_of(process: psutil.Process, part: str) -> bool:
    try:
        if part == "worker":
            parent = process.parent()
            return parent is not None and WORKER_PARENT in " ".join(parent.cmdline())
        words = process.cmdline()
        # Its leash names the program too, until it becomes it; the workers' daemon is of the driver's package.
        said = " ".join(words)
        return MARKS[part] in said and "leash" not in " ".join(words[:5]) and WORKER_PARENT not in said
    except psutil.Error:
        return False
