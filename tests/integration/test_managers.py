"""Programs that are run, watched and confined, and their files: the managers as a process, the platform a stand-in."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.exchange.app_news import AppNews
from millrace.staging.arrivals import waiting_files
from tests.support.managers import Managers, Tenant, managers
from tests.support.waiting import wait_until

IN_PLACE = 'cd "$SOURCE_PATH/$CLIENT_ID"; '
MOVE_ALL = IN_PLACE + 'for f in in/*; do [ -e "$f" ] && mv "$f" out/; done; true'
BUILD = Path(__file__).parents[2] / "build"
POINTS = (
    "manage_before_take", "manage_after_take", "manage_after_span", "manage_after_admit", "manage_after_send",
    "manage_after_end", "manage_before_filing", "manage_after_filing",
)  # fmt: skip

SEALED_POINTS = (
    "staging_after_open", "staging_before_show", "staging_after_show", "manage_after_take", "staging_before_sealed",
    "staging_after_sealed", "manage_after_admit", "manage_before_filing",
)  # fmt: skip


@pytest.fixture(scope="module")
def started() -> Iterator[Managers]:
    """Not below /tmp, which every program has one of its own of, and where everyone may pass: there it must be hidden."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="managers-", dir=BUILD) as folder:
        Path(folder).chmod(0o755)
        with managers(Path(folder) / "home") as running:
            yield running


@pytest.fixture
def tenant(started: Managers, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """One of each test's own."""
    name = re.sub(r"[^a-z_]", "_", request.node.name)[-60:].strip("_")
    yield Tenant(started, name)
    started.withdraw(name)


def test_a_batch_run_imports_every_file_in_one_span(tenant: Tenant) -> None:
    tenant.declare("sh", "-c", MOVE_ALL + "; echo said; echo wrong >&2; echo noted > $LOG_PATH/own.log")
    tenant.put("a.csv", "id\n1\n")
    tenant.put("b.csv", "id\n2\n")
    tenant.ask()
    [run] = tenant.ran()
    assert (run.state, run.exit_code, run.files, run.spans) == ("succeeded", 0, {"done": 2, "failed": 0}, (run.id,))
    assert tenant.imported() == [b"id\n1\n", b"id\n2\n"]
    assert tenant.done() == ["a.csv", "b.csv"]
    assert {report["span"] for report in tenant.reports(tenant.staging.done)} == {run.id}
    outputs = [tenant.output(run, name) for name in ("stdout.log", "stderr.log", "files/own.log")]
    assert outputs == ["said\n", "wrong\n", "noted\n"]


def test_under_encryption_only_what_a_running_program_sees_is_plain(tenant: Tenant) -> None:
    say = "cat in/*.csv; grep 4012 in/*.csv >&2; cat in/*.csv > $LOG_PATH/own.log; mv in/*.csv out/"
    wait = "while [ ! -e in/go ]; do sleep 0.02; done; rm in/go; mkdir out/none; echo 4012 > out/none/x.csv"
    leave = r'printf "id\nleft-4012\n" > in/left.csv'
    tenant.declare("sh", "-c", f"{IN_PLACE}{say}; {wait}; {leave}", encryption=True)
    tenant.upload("a.csv", "id\n4012-8888\n")
    assert [(file["file"], file["bytes"]) for file in waiting_files(tenant.staging, 9)] == [("a.csv", 13)]
    assert plain(tenant, "in", "out") == []
    tenant.ask()
    wait_until(tenant.running, 20, "the program to run")
    tenant.upload("go", "")
    [run] = tenant.ran()
    assert (run.state, run.files, run.sealed) == ("succeeded", {"done": 1, "failed": 1}, True)
    wait_until(lambda: not any(tenant.staging.inbox.iterdir()), 20, "what it left to be sealed")
    assert plain(tenant, "in", "out", "handled") == []
    assert [(file["file"], file["bytes"]) for file in waiting_files(tenant.staging, 9)] == [("left.csv", 13)]
    assert (tenant.imported(), tenant.unsealed()) == ([b"id\n4012-8888\n"], [b"id\n4012-8888\n"])
    assert [report["file"] for report in tenant.reports(tenant.staging.done)] == ["a.csv"]
    outputs = [tenant.output(run, name) for name in ("stdout.log", "stderr.log", "files/own.log")]
    assert outputs == ["id\n4012-8888\n", "4012-8888\n", "id\n4012-8888\n"]


def plain(tenant: Tenant, *below: str) -> list[Path]:
    """Files that show what nobody should see."""
    places = {"in": tenant.staging.inbox, "out": tenant.staging.outbox, "handled": tenant.staging.done.parent}
    found = [path for name in below for path in places[name].rglob("*") if path.is_file()]
    return [path for path in found if b"4012" in path.read_bytes()]


def test_a_file_goes_to_the_table_of_its_folder_or_fails_with_their_names(tenant: Tenant) -> None:
    tenant.tables("readings", "devices")
    write = "cd out && mkdir readings nothing && for f in readings/a nothing/b c; do echo 1 > $f.csv; done"
    tenant.declare("sh", "-c", IN_PLACE + write)
    tenant.ask()
    [run] = tenant.ran()
    assert run.files == {"done": 1, "failed": 2}
    assert (tenant.done(), tenant.failed()) == (["a.csv"], ["b.csv", "c.csv"])
    for report in tenant.reports(tenant.staging.failed):
        assert report["error"]["code"] == "no_table"
        assert "devices, readings" in report["error"]["remedy"]


def test_what_a_broken_run_may_have_half_written_is_not_imported(tenant: Tenant) -> None:
    write = "cd out; echo 1 > .w; mv .w whole.csv; echo 2 > half.csv; echo 3 > later.csv.tmp; echo 4 > .hidden; exit 3"
    tenant.declare("sh", "-c", IN_PLACE + write)
    tenant.ask()
    [run] = tenant.ran()
    assert (run.state, run.exit_code) == ("failed", 3)
    assert (tenant.done(), tenant.failed()) == (["whole.csv"], ["half.csv"])
    assert tenant.reports(tenant.staging.failed)[0]["error"]["code"] == "half_written"
    assert sorted(os.listdir(tenant.staging.outbox)) == [".hidden", "later.csv.tmp"]


def test_a_stream_app_is_kept_running_and_its_files_are_imported_as_they_come(tenant: Tenant) -> None:
    carry = 'while true; do for f in in/*; do [ -e "$f" ] && mv "$f" out/; done; sleep 0.02; done'
    tenant.declare("sh", "-c", IN_PLACE + carry, mode="stream")
    for number in range(20):
        tenant.put(f"{number}.csv", f"id\n{number}\n")
    wait_until(lambda: len(tenant.done()) == 20, 20, "all files to be imported")
    assert len(tenant.imported()) == 20
    first = tenant.running()
    assert {report["run"] for report in tenant.reports(tenant.staging.done)} == {first}
    tenant.kill_app()
    wait_until(lambda: tenant.running() not in (None, first), 20, "the app to be started again")
    tenant.put("late.csv")
    wait_until(lambda: "late.csv" in tenant.done(), 20, "a file of the second life")
    assert next(run for run in tenant.runs() if run.id == first).exit_code == -9


def test_a_run_under_way_is_not_started_twice(tenant: Tenant) -> None:
    wait = "while [ ! -e in/go ]; do sleep 0.02; done; rm in/go"
    tenant.declare("sh", "-c", IN_PLACE + wait, schedule={"cron": "@every 1s", "missed": "run_once"})
    wait_until(tenant.running, 30, "the first run")
    wait_until(lambda: tenant.seconds_running() > 3, 30, "moments of the schedule to pass")
    assert len(tenant.runs()) == 1
    tenant.put("go")
    wait_until(lambda: len(tenant.runs()) == 2, 30, "one run to make up for those missed")
    assert tenant.runs()[1].state in ("importing", "succeeded")


def test_the_memory_limit_of_the_agreement_holds(tenant: Tenant) -> None:
    greedy = "dd if=/dev/zero of=/dev/null bs=200M count=1"
    tenant.declare("sh", "-c", greedy, resources={"limits": {"memory": "64Mi", "cpu": "500m"}})
    tenant.ask()
    [run] = tenant.ran()
    assert run.state == "failed"
    assert run.confinement["limits"]["memory"].startswith(f"{64 << 20} bytes")


@pytest.mark.skipif(os.geteuid() != 0, reason="the platform must be root to give a program a user of its own")
def test_a_program_sees_neither_the_platform_nor_another_tenant(tenant: Tenant) -> None:
    home = tenant.managers.home
    other = home.source("other") / "in"
    other.mkdir(parents=True)
    (other / "secret.csv").write_text("theirs")
    port = tenant.managers.fake.url.rpartition(":")[2]
    look = (
        f"id -u; for f in {home.client} {other}/secret.csv; do cat $f && echo seen; done; "
        f"ls {home.root} {home.sources} && echo listed; ls $SOURCE_PATH; touch /etc/mine && echo wrote; "
        f"cat /proc/{tenant.managers.process.pid}/environ && echo spied; "
        f"(echo > /dev/tcp/127.0.0.1/{port}) && echo connected; true"
    )
    tenant.declare("bash", "-c", look)
    tenant.ask()
    [run] = tenant.ran()
    user, *visible = tenant.output(run).split()
    assert int(user) >= 1 << 30
    assert visible == [tenant.name]
    assert (run.confinement["own_user"], run.confinement["own_view"], run.confinement["warning"]) == (True, True, None)


def test_links_and_devices_are_not_imported(tenant: Tenant) -> None:
    tenant.declare("sh", "-c", IN_PLACE + "cd out && ln -s /etc/passwd a.csv && mkfifo b.csv && echo 1 > c.csv")
    tenant.ask()
    [run] = tenant.ran()
    assert run.files == {"done": 1, "failed": 0}
    assert tenant.imported() == [b"1\n"]


def test_the_end_of_a_run_is_told_once_although_the_managers_are_killed(tenant: Tenant) -> None:
    """Once while the program runs, and once between telling its end and recording it."""
    news = AppNews(tenant.managers.home)
    tenant.declare("sh", "-c", IN_PLACE + "while [ ! -e in/go ]; do sleep 0.02; done; rm in/go; echo 1 > out/a.csv")
    tenant.ask()
    wait_until(tenant.running, 20, "the program to run")
    tenant.managers.process.kill()
    tenant.managers.process.wait(20)
    tenant.managers.start()
    [cut_off] = tenant.ran()
    (tenant.managers.failpoints / "manage_after_told").write_text("kill")
    tenant.put("go")
    tenant.ask()
    assert tenant.managers.process.wait(20) == -9
    tenant.managers.start()
    [ended, _] = tenant.ran(2)
    told = [(note.run, note.what) for note in news.waiting() if note.tenant == tenant.name]
    assert told == [
        (cut_off.id, "started"), (cut_off.id, "failed"), (ended.id, "started"), (ended.id, "succeeded")
    ]  # fmt: skip
    data = {note.id: note.data for note in news.waiting()}
    assert "cut off" in data[f"{cut_off.id}.ended"]["reason"]
    assert data[f"{ended.id}.ended"]["files"] == {"done": 1, "failed": 0}


def test_two_apps_of_a_tenant_have_folders_runs_and_schedules_of_their_own(tenant: Tenant) -> None:
    other = Tenant(tenant.managers, tenant.name, "clean")
    tenant.declare("sh", "-c", MOVE_ALL + "; echo first; ls $SOURCE_PATH/$CLIENT_ID")
    other.declare("sh", "-c", MOVE_ALL + "; echo second", schedule="@every 1s")
    other.put("b.csv", "id\n2\n")
    wait_until(lambda: other.done() == ["b.csv"], 30, "the second app's file")
    tenant.put("a.csv", "id\n1\n")
    assert tenant.runs() == [], "the first app has no schedule"
    tenant.ask()
    [run] = tenant.ran()
    assert (run.app, run.files["done"], tenant.done()) == ("app", 1, ["a.csv"])
    assert tenant.output(run).split() == ["first", "in", "log", "out"]
    assert {one.app for one in other.runs()} == {"clean"}
    assert other.output(other.ran()[-1]) == "second\n"
    told = {note.data["app"] for note in AppNews(tenant.managers.home).waiting() if note.tenant == tenant.name}
    assert told == {"app", "clean"}


def test_replicas_of_a_batch_divide_the_files_and_what_one_leaves_returns(tenant: Tenant) -> None:
    """One of them fails: its files wait for the next run, and nobody else had them."""
    one = 'i=$JOB_COMPLETION_INDEX; for f in in/*; do echo "$i ${f#in/}"; done; '
    fail = 'if [ "$i" = 1 ] && [ ! -e out/.failed ]; then touch out/.failed; exit 3; fi; '
    carry = 'for f in in/*; do [ -e "$f" ] && cp "$f" out/.$i && mv out/.$i "out/${f#in/}" && rm "$f"; done; true'
    tenant.declare("sh", "-c", IN_PLACE + one + fail + carry, replicas=3)
    for number in range(9):
        tenant.put(f"{number}.csv", f"id\n{number}\n")
    tenant.ask()
    [first] = tenant.ran()
    assert (first.state, first.exit_code, first.files["done"]) == ("failed", 3, 6)
    said = [tenant.output(first, name).split() for name in ("stdout.log", "stdout-1.log", "stdout-2.log")]
    assert [lines[0] for lines in said] == ["0", "1", "2"]
    seen = [name for lines in said for name in lines[1::2]]
    assert sorted(seen) == [f"{number}.csv" for number in range(9)], "each file is seen by one replica"
    assert sorted(os.listdir(tenant.staging.inbox)) == sorted(said[1][1::2]), "what it had claimed is back"
    tenant.ask()
    tenant.ran(2)
    assert tenant.imported() == [f"id\n{number}\n".encode() for number in range(9)]


def test_claims_of_replicas_that_died_with_the_managers_return(tenant: Tenant) -> None:
    tenant.declare("sh", "-c", IN_PLACE + "while [ ! -e out/.go ]; do sleep 0.02; done; " + MOVE_ALL, replicas=2)
    for number in range(4):
        tenant.put(f"{number}.csv", f"id\n{number}\n")
    tenant.ask()
    wait_until(tenant.running, 20, "the replicas to run")
    wait_until(lambda: not os.listdir(tenant.staging.inbox), 20, "all files to be claimed")
    tenant.managers.process.kill()
    tenant.managers.process.wait(20)
    tenant.managers.start()
    wait_until(lambda: len(os.listdir(tenant.staging.inbox)) == 4, 20, "the claims to return")
    tenant.ran()
    (tenant.staging.outbox / ".go").touch()
    tenant.ask()
    tenant.ran(2)
    assert tenant.imported() == [f"id\n{number}\n".encode() for number in range(4)]


@pytest.mark.parametrize(
    ("encryption", "points"), [(False, POINTS), pytest.param(True, SEALED_POINTS, marks=pytest.mark.slow)]
)
def test_no_file_is_lost_or_imported_twice_by_a_crash(
    tenant: Tenant, encryption: bool, points: tuple[str, ...]
) -> None:
    """The managers are killed at each of their boundaries, and started again."""
    tenant.declare("sh", "-c", MOVE_ALL, encryption=encryption)
    ending, put = (".sealed", tenant.upload) if encryption else ("", tenant.put)
    expected = set()
    for point in points:
        for number in range(3):
            expected.add(f"{point}{number}.csv")
            put(f"{point}{number}.csv", f"id\n{point}{number}\n")
        (tenant.managers.failpoints / point).write_text("kill")
        tenant.ask()
        assert tenant.managers.process.wait(20) == -9, point
        tenant.managers.start()
        tenant.ask()
        done = {f"{name}{ending}" for name in expected}
        wait_until(lambda done=done: set(tenant.done()) == done, 20, f"every file to be done behind {point}")
    wait_until(lambda: all(run.is_over for run in tenant.runs()), 20, "every run to be over")
    assert tenant.imported() == sorted(f"id\n{name.removesuffix('.csv')}\n".encode() for name in expected)
    assert tenant.unsealed() == (tenant.imported() if encryption else [])
    assert not list(tenant.staging.taken.iterdir())
    assert tenant.failed() == []
