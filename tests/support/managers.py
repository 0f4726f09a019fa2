"""The ingestion managers as a process, with a stand-in for the platform: real programs, real files, no Kafka and no Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from millrace.exchange.app_folders import Staging
from millrace.exchange.apps import AppBoard
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles, keyring_of
from millrace.model.agreement import THE_APP
from millrace.seal.keyring import Keyring
from millrace.settings import KmsSettings
from millrace.staging.arrivals import Arrival
from millrace.staging.runs import Run, run_folder, run_folders
from millrace.staging.sealed import SealedFile
from tests.support.fake_platform import TOKEN, FakePlatform, fake_platform
from tests.support.processes import leashed, stop
from tests.support.waiting import wait_until

SECONDS = 60.0
APPS = ("GET", "/v1/apps")


class Managers:
    """`user`: who runs them, if not whoever runs the tests. `through`: a command that becomes them."""

    def __init__(
        self,
        home: Path,
        fake: FakePlatform,
        settings: Mapping[str, str] | None = None,
        user: int | None = None,
        through: Sequence[str] = (),
    ) -> None:
        self.home = Home(home)
        self._settings = settings or {}
        self._user = user
        self._through = tuple(through)
        self.fake = fake
        self.failpoints = home / "failpoints"
        self.failpoints.mkdir(parents=True)
        (home / "client.json").write_text(json.dumps({"url": fake.url, "token": TOKEN}))
        (home / "client.json").chmod(0o600)
        fake.answers[APPS] = {"items": []}
        if user is not None:
            for path in (home, *home.iterdir()):
                os.chown(path, user, user)
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        self.home.apps.unlink(missing_ok=True)
        own = {"MILLRACE_HOME": str(self.home.root), "MILLRACE_FAILPOINTS": str(self.failpoints)}
        environ = {**os.environ, **self._settings, **own}
        argv = [*self._through, sys.executable, "-m", "millrace.manage"]
        if self._user is not None:
            argv = [sys.executable, "-m", "tests.support.as_user", str(self._user), *argv]
        with (self.home.root / "managers.log").open("ab") as log:
            self.process = subprocess.Popen(leashed(argv), env=environ, stderr=log)
        wait_until(lambda: self.home.apps.exists() or self.process.poll(), SECONDS, "the managers to be there")

    def stop(self) -> None:
        stop(self.process, SECONDS)

    def declare(self, tenant: str, command: tuple[str, ...], agreement: dict[str, Any]) -> None:
        """`mode`, `env`, `replicas` and `name` belong to the app, all else to the agreement."""
        app = {name: agreement[name] for name in ("mode", "env", "replicas", "name") if name in agreement}
        rest = {name: value for name, value in agreement.items() if name not in app}
        named = {"tenant": tenant, "app": app.get("name", THE_APP)}
        item = {**named, "revision": 1, "agreement": {"app": {"command": list(command), **app}, **rest}}
        others = [other for other in self.fake.answers[APPS]["items"] if not named.items() <= other.items()]
        self.fake.answers[APPS] = {"items": [*others, item]}

    def withdraw(self, tenant: str) -> None:
        kept = [other for other in self.fake.answers[APPS]["items"] if other["tenant"] != tenant]
        self.fake.answers[APPS] = {"items": kept}


class Tenant:
    """One tenant with the table `readings`, and what its program did."""

    def __init__(self, managers: Managers, name: str, app: str = THE_APP) -> None:
        self.managers = managers
        self.name = name
        self.staging = Staging(managers.home, name, app)
        self.tables("readings")

    def tables(self, *names: str) -> None:
        self.managers.fake.answers["GET", f"/v1/tenants/{self.name}"] = {"tables": list(names)}

    def declare(self, *command: str, **agreement: Any) -> None:
        self.managers.declare(self.name, command, {"name": self.staging.app, **agreement})

    def ask(self) -> None:
        AppBoard(self.managers.home).ask(self.name, self.staging.app)

    def put(self, name: str, text: str = "id\n1\n") -> None:
        """Into `in`, as an upload would."""
        wait_until(self.staging.schedule.is_file, SECONDS, "the folders to be made")
        path = self.staging.inbox / f".{name}"
        path.write_text(text)
        owner = self.staging.inbox.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        path.rename(self.staging.inbox / name)

    def runs(self) -> list[Run]:
        """The newest first."""
        return [folder.read() for folder in run_folders(self.staging)]

    def ran(self, count: int = 1) -> list[Run]:
        """The runs, once so many are over."""

        def over() -> list[Run]:
            runs = self.runs()
            return runs if sum(run.is_over for run in runs) >= count else []

        return wait_until(over, SECONDS, f"{count} runs to be over")

    def running(self) -> str | None:
        """The run whose program is running."""
        return next((run.id for run in self.runs() if run.state == "running"), None)

    def kill_app(self) -> None:
        """Ends the program as an accident would."""
        for child in psutil.Process(self.managers.process.pid).children():
            child.kill()

    def seconds_running(self) -> float:
        return (datetime.now(UTC) - datetime.fromisoformat(self.runs()[0].started_at)).total_seconds()

    @property
    def keys(self) -> Keyring:
        return keyring_of(KeyFiles(self.managers.home), KmsSettings())

    def upload(self, name: str, text: str) -> None:
        """As the server takes it in under encryption."""
        with Arrival(self.staging, name, self.keys) as arrival:
            arrival.write(text.encode())
            arrival.keep()

    def output(self, run: Run, name: str = "stdout.log") -> str:
        """As the API shows it."""
        return b"".join(run_folder(self.staging, run.id).log_tail(name, 1 << 20, self.keys)).decode()

    def unsealed(self) -> list[bytes]:
        """What was kept sealed of the files that are done."""
        kept = self.staging.done.rglob("*.sealed")
        files = [SealedFile(path, path.name, self.name, self.keys).open() for path in kept]
        return sorted(file.read() for file in files)

    def done(self) -> list[str]:
        return _files(self.staging.done)

    def failed(self) -> list[str]:
        return _files(self.staging.failed)

    def reports(self, where: Path) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(where.rglob("*.report.json"))]

    def imported(self) -> list[bytes]:
        """What each import of the tenant holds at the stand-in."""
        fake = self.managers.fake
        return sorted(bytes(fake.stored[one]) for one, tenant in fake.tenants.items() if tenant == self.name)


def _files(where: Path) -> list[str]:
    """The names of those that lie there, without their reports."""
    return sorted(path.name for path in where.rglob("*") if path.is_file() and not path.name.endswith(".report.json"))


@contextmanager
def managers(
    home: Path,
    settings: Mapping[str, str] | None = None,
    user: int | None = None,
    through: Sequence[str] = (),
) -> Iterator[Managers]:
    with fake_platform() as fake:
        started = Managers(home, fake, settings, user, through)
        started.start()
        try:
            yield started
        finally:
            started.stop()
