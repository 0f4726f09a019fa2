"""The server as a process of its own, with a broker and without a data plane: for what needs no row to be validated."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from millrace.client import Millrace
from millrace.embed.ports import accepts, free_ports
from millrace.exchange.client_file import ClientFile, write_client_file
from tests.support.broker import passwords_of, running_broker
from tests.support.processes import started
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class ApiServer:
    home: Path
    url: str
    token: str
    process: psutil.Process
    client: Millrace

    def cpu_seconds(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)


@contextmanager
def api_server(home: Path, module: str = "millrace.api", **environ: str) -> Iterator[ApiServer]:
    """`module` is run as the server: it may prepare the process and then do what `millrace.api` does."""
    port, token = free_ports(1)[0], f"mr_{secrets.token_urlsafe(16)}"
    url = f"http://127.0.0.1:{port}"
    home.mkdir(parents=True, exist_ok=True)
    write_client_file(home, ClientFile(url, token))
    with running_broker(home / "broker") as broker, (home / "server.log").open("wb") as log:
        passwords = {"MILLRACE_KAFKA__PASSWORDS": str(passwords_of(broker.home))}
        env = {**os.environ, **passwords, **environ, "MILLRACE_HOME": str(home)}
        argv = [sys.executable, "-m", module, broker.bootstrap_servers, "127.0.0.1", str(port)]
        with (
            started(argv, env=env, stdout=log, stderr=subprocess.STDOUT) as process,
            Millrace(url, token) as client,
        ):
            wait_until(lambda: accepts(port) or process.poll() is not None, 60, "the server to listen")
            assert process.poll() is None, (home / "server.log").read_text()[-3000:]
            try:
                yield ApiServer(home, url, token, psutil.Process(process.pid), client)
            finally:
                process.terminate()
