"""A tenant's program puts links in the place of every name it can write, while the managers and uploads use them and while
the managers are started again: nothing of anybody else is read, moved, written or changed."""

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import millrace
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.model.errors import MillraceError
from millrace.staging.arrivals import Arrival, waiting_files
from millrace.staging.users import user_of
from tests.support import link_attacker
from tests.support.managers import Managers, Tenant, managers
from tests.support.processes import started as process
from tests.support.waiting import wait_until

BUILD = Path(__file__).parents[2] / "build"
MARKER = "victims-own-4012"
RESTARTS = 2
ROUNDS = 25
SECONDS = 60.0


@pytest.fixture
def running() -> Iterator[Managers]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="links-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        with managers(Path(folder) / "home") as started:
            yield started


def victims(home: Home) -> list[Path]:
    """Folders and files that are not the attacker's; each holds the marker."""
    other = Staging(home, "victim")
    folders = [
        other.inbox, other.outbox, other.log, other.done, home.table("victim", "t") / "_delta_log",
        home.data_keys("victim"), home.root.parent / "etc",
    ]  # fmt: skip
    for folder in folders:
        folder.mkdir(parents=True)
        for name in (f"{MARKER}.csv", "1.csv"):
            (folder / name).write_text(MARKER)
            os.utime(folder / name, (1, 1))
    home.store.write_text(MARKER)
    return [*folders, home.store, home.client, home.root.parent / "etc" / "1.csv"]


def tree(paths: list[Path]) -> dict[str, tuple[object, ...]]:
    """Everything that could be changed about them."""
    found: dict[str, tuple[object, ...]] = {}
    below = [inner for path in paths if path.is_dir() for inner in path.rglob("*")]
    for path in [*paths, *below]:
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else sorted(os.listdir(path))
        found[str(path)] = (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            status.st_nlink,
            status.st_mtime_ns,
            str(content),
        )
    return found


class Uploads(threading.Thread):
    """As the server takes them in, one after another."""

    def __init__(self, tenant: Tenant, *, is_sealed: bool) -> None:
        super().__init__(daemon=True)
        self._tenant = tenant
        self._keys = tenant.keys if is_sealed else None
        self._over = threading.Event()
        self.kept = 0
        self.seen: set[str] = set()

    def run(self) -> None:
        while not self._over.wait(0.001):
            with suppress(OSError, MillraceError):
                self._tenant.staging.make()
                with Arrival(self._tenant.staging, f"up{self.kept}.csv", self._keys) as arrival:
                    arrival.write(b"id\n1\n")
                    arrival.keep()
                    self.kept += 1
            self.seen |= {one["file"] for one in waiting_files(self._tenant.staging, 1000)}

    def end(self) -> None:
        self._over.set()
        self.join(SECONDS)


def test_no_link_of_a_program_leads_the_platform_anywhere(running: Managers) -> None:
    home = running.home
    targets = victims(home)
    before = tree(targets)
    elsewhere, sealed, local = (Tenant(running, name) for name in ("elsewhere", "sealed", "local"))
    show = 'cd "$SOURCE_PATH/$CLIENT_ID"; cat in/* >&2; ls -R . ; echo said > log/own.log; echo 1 > out/own.csv'
    every = {"cron": "@every 1s"}
    running.declare("elsewhere", (), {"mode": "stream"})
    sealed.declare("sh", "-c", show, schedule=every, encryption=True)
    local.declare("sh", "-c", show, schedule=every)
    running.fake.answers["GET", "/v1/apps"]["items"][0]["agreement"]["app"] = {"image": "x", "mode": "stream"}
    attacked = (elsewhere, sealed, local)
    for tenant in attacked:
        wait_until(tenant.staging.outbox.is_dir, SECONDS, "the folders to be made")
    uploads = [Uploads(tenant, is_sealed=tenant is sealed) for tenant in attacked]
    with ExitStack() as stack:
        for tenant in attacked:
            argv = [sys.executable, link_attacker.__file__, str(tenant.staging.root), *map(str, targets)]
            attacker = stack.enter_context(process(argv))
            stack.callback(attacker.kill)
        for upload in uploads:
            upload.start()
            stack.callback(upload.end)
        for turn in range(1, RESTARTS + 1):
            for tenant, upload in zip(attacked, uploads, strict=True):
                wait_until(
                    lambda upload=upload, most=ROUNDS * turn: upload.kept >= most, SECONDS, f"uploads to {tenant.name}"
                )
            wait_until(lambda most=turn: len(elsewhere.imported()) >= most * 5, SECONDS, "files to be taken")
            wait_until(lambda most=turn: len(local.runs()) >= most, SECONDS, "runs of the local app")
            running.stop()
            running.start()
    running.stop()
    assert tree(targets) == before
    for tenant, upload in zip(attacked, uploads, strict=True):
        assert not [name for name in upload.seen if MARKER in name], tenant.name
        assert not [path for path in places(tenant) if MARKER in path.name or MARKER in text(path)], tenant.name
        assert not [one for one in tenant.imported() if MARKER.encode() in one or b"root:x:" in one], tenant.name
    running.start()


def places(tenant: Tenant) -> list[Path]:
    """What the platform keeps of the tenant, and its folders, as they lie there."""
    roots = (tenant.staging.handled, tenant.staging.root)
    return [path for root in roots for path in root.rglob("*") if not path.is_symlink()]


def text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def test_paths_of_programs_are_entered_and_never_followed() -> None:
    """Every use of these paths in the code is an argument of `enter`, the name of a folder, or a watcher's root."""
    allowed = (
        "enter(",
        "_clear(",
        "gather_own_logs(",
        "follow(",
        "Outbox(",
        "_visible(",
        "for ",
        "own_as(",
        "= staging.inbox",
        # Handed to the launcher, which shows the folder beneath a handle.
        '"inbox": str(',
    )
    root = Path(millrace.__file__).parent
    for path in [*root.glob("manage/*.py"), *root.glob("staging/*.py"), *root.glob("api/**/*.py")]:
        for line in path.read_text().splitlines():
            if any(f"staging.{name}" in line for name in ("inbox", "outbox", "log)", "log,", "log ")):
                assert any(word in line for word in allowed), f"{path.name}: {line.strip()}"


PLATFORM = 54_321
UPLOAD = """
import sys
from pathlib import Path
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.staging.arrivals import Arrival
with Arrival(Staging(Home(Path(sys.argv[1])), "pod"), "up.csv") as arrival:
    arrival.write(b"id\\n7\\n")
    arrival.keep()
"""
PROGRAM = """
umask 022
cat in/up.csv > out/.up && mv out/.up out/up.csv && rm in/up.csv
echo id > out/readings/.a && mv out/readings/.a out/readings/a.csv
echo id > out/.b && chmod 600 out/.b && mv out/.b out/b.csv
mkdir out/mine && echo id > out/mine/c.csv
rmdir in; mv in other; ln -s / link; ls ../../handled ../victim/in; cat ../../client.json
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user")
def test_an_app_of_another_user_shares_in_and_out_and_nothing_else() -> None:
    """As on Kubernetes: the platform is no root, the app has a user of its own and the platform's group."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pod-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        with managers(Path(folder) / "home", user=PLATFORM) as running:
            home, tenant, app = running.home, Tenant(running, "pod"), user_of("pod")
            running.declare("pod", (), {"mode": "stream"})
            (item,) = running.fake.answers["GET", "/v1/apps"]["items"]
            item |= {"tables": ["readings"], "agreement": {"app": {"image": "x", "mode": "stream"}}}
            wait_until((tenant.staging.outbox / "readings").is_dir, SECONDS, "a folder for the table")
            as_platform = [sys.executable, "-m", "tests.support.as_user", str(PLATFORM), sys.executable, "-c", UPLOAD]
            subprocess.run([*as_platform, str(home.root)], check=True, timeout=30)
            ran = subprocess.run(
                ["sh", "-c", PROGRAM], cwd=tenant.staging.root, user=app, group=app, extra_groups=[PLATFORM],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            assert (ran.stdout, ran.stderr.count("\n")) == ("", 6), ran.stderr
            wait_until(lambda: len(tenant.done()) == 2 and tenant.failed(), SECONDS, "files to be taken")
            assert tenant.imported() == [b"id\n", b"id\n7\n"]
            assert (sorted(tenant.done()), tenant.failed()) == (["a.csv", "up.csv"], ["b.csv"])
            (report,) = tenant.reports(tenant.staging.failed)
            assert "chmod g+r" in report["error"]["remedy"]
            log = home.root / "managers.log"
            wait_until(
                lambda: "out/mine/c.csv cannot be taken" in log.read_text(), SECONDS, "what cannot be taken is said"
            )
            assert all(path.lstat().st_uid == PLATFORM for path in tenant.staging.done.rglob("*"))
