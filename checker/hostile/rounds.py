"""A tenant whose client app attacks everybody else, for some seconds at a time; after each round the places of the others
are compared with what they were, and the tenant's own are searched for what belongs to others."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from checker.board import Board, Lines
from checker.caller import Answer, Caller
from checker.history import FAIL, OK
from checker.hostile import program
from checker.hostile.places import OF_THE_PLATFORM, changed, leaks, looks, plant
from checker.platform import Platform

TENANT, TABLE = "soak-hostile", "readings"
FAULT_ID = "F61"
DISK_MB = 64
ENVIRON = {
    "MILLRACE_APPS__DISK_MB": str(DISK_MB),
    "MILLRACE_APPS__PROCESSES": "48",
    "MILLRACE_APPS__MEMORY_MB": "128",
    "MILLRACE_APPS__SCRATCH_MB": "16",
    "MILLRACE_APPS__CPU_MILLIS": "300",
}
ROUND_SECONDS, FILL_AFTER_SECONDS = 40.0, 12.0
START_SECONDS, ANSWER_SECONDS, END_SECONDS = 30.0, 60.0, 30.0
UPLOAD_PAUSE_SECONDS = 2.0
LOOK_SECONDS = 0.5
JSON = {"Content-Type": "application/json"}
FORM = "multipart/form-data; boundary=cut"
DOCUMENT = {
    "table": TABLE,
    "schema": {
        "type": "record",
        "name": TABLE,
        "fields": [{"name": "k", "type": "long"}, {"name": "w", "type": "string"}],
    },
    "primary_key": ["k"],
    "csv": {"header": True},
}


class Hostility:
    """`caller` is the operator's; what it is answered about the tenant is searched for canaries like any answer."""

    def __init__(
        self, platform: Platform, caller: Caller, canaries: Mapping[str, str], board: Board, lines: Lines
    ) -> None:
        self._platform, self._caller, self._board, self._lines = platform, caller, board, lines
        self._home = platform.home
        self._secrets = [*canaries.values(), platform.token]
        planted = plant(self._home, canaries)
        self._watched = [*planted, self._home / "client.json"]
        folders = sorted({str(path.parent) for path in planted} - {str(self._home)})
        files = [self._home / name for name in (OF_THE_PLATFORM, "client.json", "control.db")]
        self._secret = [*folders, *map(str, files)]
        lakes = [str(self._home / "lake" / tenant) for tenant in canaries]
        self._elsewhere = [str(self._home), *lakes, *folders, "/", "/etc", "/proc/self"]

    def run(self, rounds: int, seconds: float) -> None:
        self._declare()
        begun, step = time.monotonic(), seconds / rounds
        for place in range(rounds):
            if self._board.stop.wait(max(0.0, begun + step * (place + 0.1) - time.monotonic())):
                return
            self._attack()

    def _attack(self) -> None:
        before = looks(self._home, self._watched)
        said: dict[str, Any] = {"fault": FAULT_ID, "target": TENANT, "signal": "ATTACK"}
        said |= {"t_wall": time.time(), "t_mono": time.monotonic()}
        earlier = {run["id"] for run in self._runs()}
        self._put({"app": self._app()})
        # A program cannot start while one of its folders is a link.
        self._wait_for(lambda: len(self._attacks_of_others(earlier)) >= len(program.ATTACKS), START_SECONDS)
        with self._links() as flips:
            self._use_folders()
        said["flips"], said["is_whole"] = flips(), not self._board.stop.is_set()
        said["ended_wall"] = time.time()
        self._put({})
        self._wait_for(self._is_over, END_SECONDS)
        attacks = self._attacks_of_others(earlier)
        said["attacks"] = len(attacks)
        said["reached"] = sorted({what for attack in attacks for what in attack["reached"]})
        said["changed"] = changed(before, looks(self._home, self._watched))
        said["leaked"] = leaks(self._home, TENANT, self._secrets)
        self._lines.add({**said, "healed": time.monotonic()})

    def _app(self) -> dict[str, Any]:
        url = urlsplit(self._platform.url)
        plan = {
            "seconds": FILL_AFTER_SECONDS, "secret": self._secret, "elsewhere": self._elsewhere, "fill_mb": DISK_MB * 2,
            "ports": [["127.0.0.1", url.port], ["127.0.0.1", self._platform.broker_port]],
            "processes": [each.pid for each in self._platform.processes("server")],
        }  # fmt: skip
        command = [sys.executable, "hostile.py", json.dumps(plan)]
        return {"command": command, "mode": "stream", "uploads_first": True}

    def _declare(self) -> None:
        programs = self._home / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "hostile.py").write_text(Path(program.__file__).read_text())
        (programs / "hostile.py").chmod(0o644)
        self._put({})
        path = f"/v1/tenants/{TENANT}/tables/{TABLE}"
        self._insist("define_hostile", "PUT", path, body=json.dumps(DOCUMENT).encode(), headers=JSON)

    def _put(self, agreement: dict[str, Any]) -> None:
        body = json.dumps({"client": TENANT, **agreement}).encode()
        self._insist("agree", "PUT", f"/v1/tenants/{TENANT}", body=body, headers=JSON)

    def _insist(self, f: str, method: str, path: str, **said: Any) -> Answer:
        """Until it is answered, because the server is killed now and then."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self._caller.ask(f, method, path, table=TABLE, **said)
            if answer.kind == OK or time.monotonic() > deadline or (answer.kind == FAIL and answer.status):
                return answer
            time.sleep(LOOK_SECONDS)

    def _wait_for(self, condition: Callable[[], Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()) and time.monotonic() < deadline and not self._board.stop.is_set():
            time.sleep(LOOK_SECONDS)
        return found

    def _runs(self) -> list[dict[str, Any]]:
        answer = self._insist("runs", "GET", f"/v1/tenants/{TENANT}/app/runs", params={"limit": 20})
        return list(answer.document.get("items", []))

    def _is_running(self) -> bool:
        return any(run["state"] == "running" for run in self._runs())

    def _is_over(self) -> bool:
        return not self._is_running()

    def _attacks_of_others(self, earlier: set[str]) -> list[dict[str, Any]]:
        """Of the runs that are not among the earlier ones."""
        return [attack for run in self._runs() if run["id"] not in earlier for attack in self._attacks(run)]

    def _attacks(self, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
        path = f"/v1/tenants/{TENANT}/app/runs/{run['id']}/log"
        answer = self._insist("log", "GET", path)
        # A run that has only just begun has no log yet.
        for line in answer.text.splitlines() if answer.kind == OK else ():
            with suppress(ValueError):
                yield json.loads(line)

    @contextmanager
    def _links(self) -> Iterator[Callable[[], int]]:
        """Links from outside as well: inside, a program cannot replace its own folders."""
        folder = self._home / "sources" / TENANT
        argv = [sys.executable, "-m", "checker.hostile.links", str(folder), *self._secret, *self._elsewhere]
        attacker = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        counted: list[int] = []
        try:
            yield lambda: sum(counted)
        finally:
            attacker.terminate()
            said, _ = attacker.communicate(timeout=END_SECONDS)
            counted.append(int(said.strip() or 0))

    def _use_folders(self) -> None:
        """The server puts files into the folders that are being replaced, and lists them."""
        deadline, number = time.monotonic() + ROUND_SECONDS, 0
        while time.monotonic() < deadline and not self._board.stop.wait(UPLOAD_PAUSE_SECONDS):
            number += 1
            path, body = f"/upload-file/{TENANT}", _form(f"{number}.csv", f"k,w\n{number},up\n")
            self._caller.ask("stage", "POST", path, table=TABLE, body=body, headers={"Content-Type": FORM})
            self._caller.ask("waiting", "GET", f"/tenant/{TENANT}", table=TABLE)


def _form(name: str, text: str) -> bytes:
    about = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    return f"--cut\r\n{about}\r\n\r\n{text}\r\n--cut--\r\n".encode()
