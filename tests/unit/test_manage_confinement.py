"""How apart programs run: limits by whatever the machine offers, and a clear word where it offers little."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from millrace.api.declarations.reading import refuse_local_command
from millrace.auth.tokens import Caller
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.manage.confinement import Confinement, ConfinementKind, launcher
from millrace.manage.limits import Limiter, Limits
from millrace.manage.logs import RotatedLog, gather_own_logs
from millrace.model.agreement import Agreement, Amounts, App
from millrace.model.errors import Invalid, Refused
from millrace.model.roles import OPERATOR
from millrace.staging import users
from millrace.staging.arrivals import Arrival, checked_file_name, waiting_files
from millrace.staging.users import user_of

BUILD = Path(__file__).parents[2] / "build"
MOST = Amounts(cpu_millis=500, memory_bytes=64 << 20)


def test_a_cgroup_holds_the_limits_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    limiter = Limiter(tmp_path)
    limits = limiter.limits("acme", MOST)
    group = tmp_path / "millrace" / "app-acme"
    assert limits.cgroup == str(group)
    assert (group / "cpu.max").read_text() == "50000 100000"
    assert (group / "memory.max").read_text() == str(64 << 20)
    assert (limiter.means, limits.means["cpu"]) == ("cgroup v2", "500m by cgroup v2")
    assert "RLIMIT_DATA" not in limits.resources
    usual = limiter.limits("free", Amounts()).means
    assert (usual["cpu"], usual["memory"]) == ("1000m by cgroup v2", f"{512 << 20} bytes in all by cgroup v2")


@pytest.mark.parametrize("controllers", [None, "hugetlb\n"])
def test_without_a_cgroup_each_process_is_limited(tmp_path: Path, controllers: str | None) -> None:
    if controllers:
        (tmp_path / "cgroup.controllers").write_text(controllers)
    limiter = Limiter(tmp_path)
    limits = limiter.limits("acme", MOST)
    assert (limits.cgroup, limits.resources["RLIMIT_DATA"]) == (None, 64 << 20)
    assert len(limits.cores) == 1
    assert (limiter.means, limits.means["memory"]) == (
        "rlimits and cores",
        f"{64 << 20} bytes per process by rlimit, and in all by looking",
    )


def test_the_platforms_own_user_is_not_limited_in_processes() -> None:
    assert "RLIMIT_NPROC" in Limiter(None).limits("acme", MOST).resources
    assert "RLIMIT_NPROC" not in Limiter(None, is_confined=False, own_user=False).limits("acme", MOST).resources


def test_the_operator_is_told_what_is_not_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert users.owner_of("acme") is None
    assert "every tenant" in str(Confinement(ConfinementKind.UNCONFINED, own_user=False).warning)
    assert "everyone may read" in str(Confinement(ConfinementKind.UNCONFINED, own_user=True).warning)
    assert "old. Run the platform as root" in str(
        Confinement(ConfinementKind.REFUSED, own_user=True, why_not="old").warning
    )
    for kind in (ConfinementKind.OWN_USER, ConfinementKind.USER_NAMESPACE):
        assert Confinement(kind, own_user=kind is ConfinementKind.OWN_USER).warning is None


def test_each_tenant_has_a_user_of_its_own_far_from_all_others() -> None:
    found = {user_of(f"tenant{number}") for number in range(1000)}
    assert len(found) == 1000
    assert min(found) >= 1 << 30
    assert user_of("acme") == user_of("acme")


def test_a_program_gets_the_contracts_environment_and_nothing_of_the_platforms(tmp_path: Path) -> None:
    staging = Staging(Home(tmp_path), "acme")
    order = Confinement(ConfinementKind.UNCONFINED, own_user=False).order(
        staging, ("x",), {"TABLE": "items", "PATH": "/opt"}, Limits()
    )
    assert {name: order["environ"][name] for name in ("CLIENT_ID", "SOURCE_PATH", "TABLE", "PATH")} == {
        "CLIENT_ID": "acme",
        "SOURCE_PATH": str(tmp_path / "sources"),
        "TABLE": "items",
        "PATH": "/opt",
    }
    assert order["environ"].keys() == {
        "CLIENT_ID",
        "SOURCE_PATH",
        "LOG_PATH",
        "TABLE",
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
    }


def test_only_the_operator_declares_local_commands() -> None:
    local, image = (Agreement("acme", app=app) for app in (App(command=("sh",)), App(image="x")))
    refuse_local_command(Caller("admin", None, OPERATOR), local)
    refuse_local_command(Caller("someone", "acme"), image)
    with pytest.raises(Refused, match="operator"):
        refuse_local_command(Caller("someone", "acme"), local)


def test_logs_are_rotated(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "stdout.log", most_bytes=10)
    for number in range(6):
        log.write(b"line %d\n" % number)
    log.close()
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"stdout.log": "line 5\n", "stdout.log.1": "line 4\n", "stdout.log.2": "line 3\n"}


def test_log_files_of_a_program_are_kept_and_its_links_are_not_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "log", tmp_path / "kept"
    source.mkdir()
    (source / "own.log").write_text("said")
    (source / "link.log").symlink_to("/etc/passwd")
    gather_own_logs(source, target)
    (source / "own.log").write_text("again")
    gather_own_logs(source, target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"own.log": "again", "own.log.1": "said"}


def test_an_upload_appears_whole_and_never_over_another(tmp_path: Path) -> None:
    staging = Staging(Home(tmp_path), "acme")
    staging.make()
    names = []
    for text in (b"first", b"second"):
        with Arrival(staging, "a.csv.gz") as arrival:
            arrival.write(text)
            assert waiting_files(staging, 10) == [] if not names else len(waiting_files(staging, 10)) == 1
            names.append(arrival.keep().name)
    assert names[0] == "a.csv.gz"
    assert names[1].endswith(".csv.gz")
    assert sorted(path.read_bytes() for path in staging.inbox.iterdir()) == [b"first", b"second"]
    with Arrival(staging, "b.csv") as arrival:
        arrival.write(b"half, and then its sender is gone")
    assert len(list(staging.inbox.iterdir())) == 2


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a\x00b", "a\nb", "x" * 201, None])
def test_names_that_no_upload_may_have(name: str | None) -> None:
    with pytest.raises(Invalid):
        checked_file_name(name)


def test_a_path_is_only_its_last_part() -> None:
    assert [checked_file_name(name) for name in ("../../etc/passwd", "C:\\data\\a b.csv")] == ["passwd", "a b.csv"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program another user's")
def test_without_a_view_of_its_own_permissions_hide_the_token_and_other_tenants() -> None:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="user-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        home = Home(Path(folder))
        home.client.touch(0o600)
        home.programs.mkdir()
        mine, other = Staging(home, "acme"), Staging(home, "other")
        for staging in (mine, other):
            staging.make(user_of(staging.tenant))
        (other.inbox / "secret.csv").write_text("theirs")
        look = f"id -u; cat {home.client} {other.inbox}/secret.csv; ls {other.root}; cd $SOURCE_PATH/$CLIENT_ID && ls"
        order = Confinement(ConfinementKind.UNCONFINED, own_user=True).order(mine, ("sh", "-c", look), {}, Limits())
        ran = subprocess.run(launcher(), input=json.dumps(order).encode(), capture_output=True, check=True, timeout=30)
    assert ran.stdout.split() == [str(user_of("acme")).encode(), b"in", b"log", b"out"]
    assert ran.stderr.count(b"Permission denied") == 3
