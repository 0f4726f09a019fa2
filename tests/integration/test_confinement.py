"""A hostile client app, run by the real managers: as root, and without root by user namespaces. It gets nowhere."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile_program
from tests.support.managers import Managers, Tenant, managers
from tests.support.waiting import wait_until

BUILD = Path(__file__).parents[2] / "build"
OTHER_USER = 54_321
SETTINGS = {
    "MILLRACE_APPS__DISK_MB": "80",
    "MILLRACE_APPS__SCRATCH_MB": "16",
    "MILLRACE_APPS__MEMORY_MB": "256",
    "MILLRACE_APPS__PROCESSES": "100",
    "MILLRACE_APPS__FILES": "2000",
    "MILLRACE_APPS__KEPT_MB": "80",
    "MILLRACE_SECRET_TOKEN": "nobody's business",
}


@pytest.fixture(scope="module", params=["own user", "user namespace"])
def started(request: pytest.FixtureRequest) -> Iterator[Managers]:
    is_root = os.geteuid() == 0
    if request.param == "own user" and not is_root:
        pytest.skip("the platform must be root to give a program a user of its own")
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hostile-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        user = OTHER_USER if is_root and request.param == "user namespace" else None
        with managers(Path(folder) / "home", SETTINGS, user) as running:
            report = json.loads(running.home.apps.read_text())
            assert report["confinement"]["kind"] == request.param, report["confinement"]["warning"]
            home = running.home
            for path in (home.store, home.source("other") / "in" / "secret.csv", home.handled("other") / "done" / "a.csv",
                         home.table("other", "t") / "_delta_log" / "0.json", home.programs / "other" / "key"):  # fmt: skip
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("not yours")
            home.app_requests.mkdir(exist_ok=True)
            for path in (home.root, *home.root.rglob("*")):
                if user is not None:
                    os.chown(path, user, user, follow_symlinks=False)
            shutil.copy(hostile_program.__file__, home.programs / "hostile.py")
            (home.programs / "hostile.py").chmod(0o644)
            yield running


class Attack:
    def __init__(self, started: Managers, name: str) -> None:
        self.tenant = Tenant(started, name)

    def __call__(self, attack: str, **plan: Any) -> tuple[dict[str, Any], str]:
        """What the program found, and what was said on standard error."""
        self.tenant.declare(sys.executable, "hostile.py", json.dumps({"attack": attack, **plan}))
        self.tenant.ask()
        [self.run] = self.tenant.ran()
        said = self.tenant.output(self.run).splitlines()
        return json.loads(said[-1]) if said and said[-1].startswith("{") else {}, self.tenant.output(
            self.run, "stderr.log"
        )


@pytest.fixture
def attack(started: Managers, request: pytest.FixtureRequest) -> Iterator[Attack]:
    name = request.node.originalname.removeprefix("test_")[:60]
    yield Attack(started, name)
    started.withdraw(name)


def test_it_sees_and_reaches_nothing_but_its_own(started: Managers, attack: Attack) -> None:
    home, port = started.home, int(started.fake.url.rpartition(":")[2])
    manager = started.process.pid
    found, said = attack(
        "look",
        read=[
            str(home.client), str(home.store), str(home.source("other") / "in" / "secret.csv"),
            str(home.handled("other") / "done" / "a.csv"), str(home.table("other", "t") / "_delta_log" / "0.json"),
            "/etc/shadow", "/programs/other/key", "/data/other/in/secret.csv", f"/proc/{manager}/environ",
            "/proc/1/environ", "/proc/1/mem", "/proc/kcore", "/dev/vda", "/dev/mem",
        ],
        list=[str(home.root), str(home.sources), "/sys", "/proc/1/fd", "/proc/1/root", "/programs/other"],
        write=[
            "/mine", "/etc/mine", "/usr/mine", "/programs/mine", "/data/mine", f"/data/{attack.tenant.name}/mine",
            f"{sys.prefix}/mine", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/var/mine", "/run/mine",
        ],
        ports=[port],
        processes=[manager, os.getpid()],
    )  # fmt: skip
    assert said == ""
    words = {what: came for what, came in found.items() if isinstance(came, str)}
    assert not [
        what for what, came in words.items() if came in ("done", "wrote", "connected", "opened") or "bytes" in came
    ]
    assert not [what for what, came in found.items() if what.startswith("list") and isinstance(came, list) and came]
    assert {found[f"kill {process}"] for process in (manager, os.getpid())} == {"ESRCH"}
    assert found["connect " + str(port)] == "ECONNREFUSED"
    unknown = {"clone3", "io_uring_setup", "memfd_create", "shmget", "newer"}
    for what, came in found.items():
        if what.startswith("call "):
            assert came == ("ENOSYS" if what.removeprefix("call ") in unknown else "EPERM"), what
    assert {came for what, came in found.items() if what.startswith("socket ")} == {"EAFNOSUPPORT"}
    assert (found["setuid 0"], found["device"]) in (("EPERM", "EPERM"), ("EINVAL", "EPERM"))
    status = dict(found["status"])
    assert {status[name] for name in ("CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:")} == {"0" * 16}
    assert (status["NoNewPrivs:"], status["Seccomp:"]) == ("1", "2")
    assert found["processes"] == [1, 2]
    assert found["environ"] == ["CLIENT_ID", "HOME", "LANG", "LOG_PATH", "PATH", "SOURCE_PATH", "TMPDIR"]
    assert "hostile.py" in found["programs"]
    # Of other folders only those above the platform's Python are there.
    above = {Path(prefix).parts[1] for prefix in (sys.prefix, sys.base_prefix)}
    system = {"bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"}
    own = {"data", "dev", "etc", "proc", "programs", "run", "tmp", "var"}
    assert own <= set(found["root"]) <= own | system | above
    assert min(found["users"]) >= 1 << 30
    assert found["own"] == [["in", "log", "out"], "wrote", "wrote", "wrote"]
    assert started.process.poll() is None


def test_programs_of_a_tenant_that_comes_later_are_not_seen(started: Managers, attack: Attack) -> None:
    tenant = attack.tenant
    tenant.declare(sys.executable, "hostile.py", json.dumps({"attack": "wait"}))
    tenant.ask()
    wait_until((tenant.staging.outbox / ".ready").exists, 30, "the program to run")
    later = started.home.programs / f"later-{tenant.managers.process.pid}"
    later.mkdir()
    (later / "key").write_text("not yours")
    tenant.put("go")
    [run] = tenant.ran()
    found = json.loads(tenant.output(run).splitlines()[-1])
    assert "hostile.py" in found["programs"]
    assert later.name not in found["programs"]


def test_a_fork_bomb_is_bounded_and_leaves_nothing(started: Managers, attack: Attack) -> None:
    found, _ = attack("forks")
    assert (90 <= found["forks"] < 100, found["why"]) == (True, "EAGAIN")
    assert not psutil.Process(started.process.pid).children(recursive=True)


def test_memory_is_bounded_for_one_process_and_for_all(attack: Attack) -> None:
    found, said = attack("memory", one_mb=300, processes=8, each_mb=60)
    assert found == {}
    assert attack.run.exit_code == -9
    assert "bytes of memory, and may use 268,435,456" in said
    assert attack.tenant.output(attack.run) == "refused alone\n"


def test_shared_memory_counts_too(attack: Attack) -> None:
    found, said = attack("shared_memory", one_mb=400)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of memory" in said


def test_buffers_of_sockets_count_too(attack: Attack) -> None:
    found, said = attack("sockets", processes=4)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of memory" in said


def test_the_number_of_files_is_bounded(attack: Attack) -> None:
    found, said = attack("disk", folder="out", levels=0, files=3000, each_mb=0)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "more than 2,000 files and folders" in said


@pytest.mark.parametrize(("folder", "levels"), [("out", 0), ("log", 0), ("in", 40)])
def test_disk_is_bounded(attack: Attack, folder: str, levels: int) -> None:
    """Also where no path leads, because it would be too long, and while processes end all the time."""
    attack.tenant = Tenant(attack.tenant.managers, f"disk_{folder}")
    found, said = attack(
        "disk", folder=folder, levels=levels, files=60, each_mb=10, orphans=3 if folder == "out" else 0
    )
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of disk, and may use 83,886,080" in said
    attack.tenant.managers.withdraw(f"disk_{folder}")


def test_files_without_a_name_count_too(attack: Attack) -> None:
    found, said = attack("hidden_disk", files=60, each_mb=10)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of disk" in said


def test_files_that_the_platform_took_count_as_long_as_they_are_written(attack: Attack) -> None:
    found, said = attack("taken_disk", files=3, each_mb=50)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of disk" in said


def test_files_that_nobody_imports_fill_no_disk(attack: Attack) -> None:
    """They are kept up to a limit. Then they stay where they are, and the program's own limit holds."""
    found, said = attack("refused", files=200, each_mb=10)
    assert (found, attack.run.exit_code) == ({}, -9)
    assert "bytes of disk" in said


def test_no_file_is_larger_than_allowed_and_tmp_is_small(attack: Attack) -> None:
    found, _ = attack("large_file", one_mb=81)
    assert found == {"large": "EFBIG"}
    attack.tenant = Tenant(attack.tenant.managers, "scratch")
    found, _ = attack("scratch", one_mb=100)
    assert found == {"/tmp": "ENOSPC", "/var/tmp": "ENOSPC", "/dev/shm": "ENOSPC"}
    attack.tenant.managers.withdraw("scratch")


@pytest.fixture
def home() -> Iterator[Path]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="refused-", dir=BUILD) as folder:
        yield Path(folder) / "home"


WITHOUT_NAMESPACES = (sys.executable, "-m", "tests.support.without_namespaces")
READ_TOKEN = ("sh", "-c", 'cat "$SOURCE_PATH"/../client.json; touch "$SOURCE_PATH/$CLIENT_ID/out/.ran"')


def test_what_cannot_be_confined_does_not_run_and_everybody_says_why(home: Path) -> None:
    with managers(home, through=WITHOUT_NAMESPACES) as started:
        tenant = Tenant(started, "acme")
        tenant.declare(*READ_TOKEN)
        tenant.ask()
        [run] = tenant.ran()
        assert (run.state, run.exit_code, run.confinement["kind"]) == ("failed", None, "refused")
        assert "cannot be confined here" in str(run.error)
        assert "a user namespace" in str(run.error)
        assert "MILLRACE_APPS__UNCONFINED=true" in str(run.error)
        assert not (tenant.staging.outbox / ".ran").exists()
        said = doctor(started)
        assert "BAD client apps 1 declared; local ones are not run" in said
        assert "MILLRACE_APPS__UNCONFINED=true" in said


def test_it_runs_unconfined_only_if_the_operator_says_so(home: Path) -> None:
    with managers(home, {"MILLRACE_APPS__UNCONFINED": "true"}, through=WITHOUT_NAMESPACES) as started:
        tenant = Tenant(started, "acme")
        tenant.declare(*READ_TOKEN)
        tenant.ask()
        [run] = tenant.ran()
        assert (run.state, run.confinement["kind"]) == ("succeeded", "unconfined")
        assert "they see the platform's token" in run.confinement["warning"]
        assert "token" in tenant.output(run)
        assert "??  client apps 1 declared; not confined" in doctor(started)


def doctor(started: Managers) -> str:
    """As the operator sees it, with what the managers report."""
    report = json.loads(started.home.apps.read_text())
    backend = {name: report[name] for name in ("at", "confinement", "limits", "watching")}
    started.fake.answers["GET", "/v1/apps"] = {**started.fake.answers["GET", "/v1/apps"], "backend": backend}
    started.fake.answers["GET", "/v1/health"] = {"status": "ok", "parts": {}}
    started.fake.answers["GET", "/v1/tenants"] = {"items": [], "next": None}
    argv = [sys.executable, "-m", "millrace.cli.main", "--home", str(started.home.root), "doctor"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
