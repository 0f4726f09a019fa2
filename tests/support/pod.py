"""The platform's pod without a cluster: an overlay in, its containers as processes of this machine out, each with the
arguments, the settings and the probes that its manifest gives it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx2

from millrace.embed.accounts import ADMIN
from millrace.embed.ports import free_ports
from millrace.wire.access import Account
from tests.support.kustomize import build
from tests.support.processes import end, leashed
from tests.support.waiting import wait_until

STOP_SECONDS = 30.0
PROBED_SECONDS = 180.0
# A server that finds no broker gives up; the next one finds it.
MOST_STARTS = 5


class Pod:
    def __init__(self, overlay: Path, home: Path) -> None:
        manifests = build(overlay)
        (settings,) = (one["data"] for one in manifests if one["kind"] == "ConfigMap")
        (pod,) = (one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "StatefulSet")
        self.containers: dict[str, dict[str, Any]] = {one["name"]: one for one in pod["containers"]}
        # The ports of this machine may be taken; a pod has all of its own.
        http, kafka = free_ports(2)
        self._ports = {"8420": str(http), "9092": str(kafka)}
        self.home, self.url = home, f"http://127.0.0.1:{http}"
        said = {name: self._here(value) for name, value in settings.items()}
        self._environ = {**os.environ, **said, "MILLRACE_HOME": str(home), "HOME": os.environ["HOME"]}
        self._passwords = home / "secret"
        if "MILLRACE_KAFKA__PASSWORDS" in said:
            self._environ["MILLRACE_KAFKA__PASSWORDS"] = str(self._passwords)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: dict[str, int] = {}

    def start(self) -> None:
        """In any order, as a cluster does it."""
        self.home.mkdir(parents=True)
        (self.home / "client.json").write_text(json.dumps({"url": self.url, "token": "mr_pod"}))
        # As the operator makes the Secret.
        self._passwords.mkdir()
        for account in (ADMIN, *Account):
            (self._passwords / account).write_text(token_hex(32))
        wait_until(self.is_well, PROBED_SECONDS, "every probe to succeed")

    def is_well(self) -> bool:
        """As a cluster sees it; what has ended is started again, as a cluster does."""
        for name in self.containers:
            if name not in self._processes or self._processes[name].poll() is not None:
                self._start(name)
        return all(self.probe(name) for name in self.containers)

    def _start(self, name: str) -> None:
        self.starts[name] = self.starts.get(name, 0) + 1
        log = self.home / f"{name}.log"
        assert self.starts[name] <= MOST_STARTS, f"{name} ended: {log.read_text()[-2000:]}"
        with log.open("ab") as output:
            argv = self._command(self.containers[name]["args"])
            self._processes[name] = subprocess.Popen(leashed(argv), env=self._environ, stdout=output, stderr=output)

    def probe(self, name: str) -> bool:
        probe = self.containers[name]["livenessProbe"]
        if "exec" in probe:
            command = self._command(probe["exec"]["command"])
            ran = subprocess.run(command, env=self._environ, capture_output=True, check=False, timeout=PROBED_SECONDS)
            return ran.returncode == 0
        try:
            return httpx2.get(self.url + probe["httpGet"]["path"], timeout=5).status_code == httpx2.codes.OK
        except httpx2.TransportError:
            return False

    def stop(self) -> dict[str, int | None]:
        """How each ended when it was asked to; None if it had to be killed."""
        for process in self._processes.values():
            process.terminate()
        return {name: end(process, STOP_SECONDS) for name, process in self._processes.items()}

    def _command(self, words: list[str]) -> list[str]:
        expanded = [re.sub(r"\$\((\w+)\)", lambda found: self._environ[found[1]], self._here(word)) for word in words]
        return [sys.executable if expanded[0] == "python" else expanded[0], *expanded[1:]]

    def _here(self, text: str) -> str:
        for port, ours in self._ports.items():
            text = re.sub(rf"\b{port}\b", ours, text)
        return text


@contextmanager
def running_pod(overlay: Path, home: Path) -> Iterator[Pod]:
    pod = Pod(overlay, home)
    try:
        pod.start()
        yield pod
    finally:
        pod.stop()
