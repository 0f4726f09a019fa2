"""A child process from start to end, whoever ends it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from millrace.embed.process import LOG_BYTES, Child, Launch
from tests.support.children import wait_ready
from tests.support.processes import started
from tests.support.waiting import wait_until

FOREVER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = """
import subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(inner.pid, flush=True)
time.sleep(600)
"""


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", textwrap.dedent(code), *arguments)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "child.log"


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.kill()


def start(children: list[Child], launch: Launch) -> Child:
    child = Child(launch)
    children.append(child)
    child.start()
    return child


def printed(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text()


def test_output_goes_to_the_log_and_the_environment_in(log: Path, children: list[Child]) -> None:
    code = "import os; print(os.environ['COLOUR']); print(os.getcwd())"
    child = start(children, Launch("c", python(code), log, env={"COLOUR": "blue"}, cwd=log.parent.parent))
    wait_until(lambda: not child.running, 30, "the child ends")
    assert child.exit_code == 0
    assert log.read_text() == f"blue\n{log.parent.parent}\n"


def test_ready_is_when_the_probe_says_so(log: Path, children: list[Child]) -> None:
    child = start(children, Launch("c", python(FOREVER), log, is_ready=lambda: printed(log, "up")))
    wait_ready(child, 10)
    assert child.running
    child.stop()
    assert (child.running, child.exit_code) == (False, -signal.SIGTERM)


def test_one_that_ignores_the_signal_is_killed(log: Path, children: list[Child]) -> None:
    launch = Launch("c", python(STUBBORN), log, is_ready=lambda: printed(log, "up"), stop_seconds=0.2)
    child = start(children, launch)
    wait_ready(child, 10)
    child.stop()
    assert child.exit_code == -signal.SIGKILL


def test_stopping_takes_the_childs_own_children_along(log: Path, children: list[Child]) -> None:
    child = start(children, Launch("c", python(PARENT), log, is_ready=lambda: printed(log, "\n")))
    wait_ready(child, 10)
    inner = int(log.read_text())
    child.stop()
    wait_until(lambda: gone(inner), 30, "the inner process is gone")


def test_nothing_outlives_a_killed_supervisor(log: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from millrace.embed.process import Child, Launch
        log = Path(sys.argv[1])
        forever = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
        child = Child(Launch("c", forever, log, is_ready=lambda: "up" in log.read_text()))
        child.start()
        ends = time.monotonic() + 10
        while not child.probe() and time.monotonic() < ends:
            time.sleep(0.02)
        print(child.pid, flush=True)
        time.sleep(600)
    """
    with started(python(code, str(log)), stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert not gone(pid)
        supervisor.kill()
        wait_until(lambda: gone(pid), 30, "the child of the killed supervisor is gone")


def test_what_an_earlier_run_left_is_ended_first(log: Path, children: list[Child]) -> None:
    earlier = start(children, Launch("c", python(FOREVER), log))
    left_over = earlier.pid
    assert left_over is not None
    later = start(children, Launch("c", python(FOREVER), log))
    assert gone(left_over)
    assert later.running


def test_a_reused_process_number_is_left_alone(log: Path, children: list[Child]) -> None:
    bystander = start(children, Launch("bystander", python(FOREVER), log.with_name("bystander.log")))
    log.with_suffix(".pid").write_text(f"{bystander.pid} 12345.0\n")
    child = start(children, Launch("c", python(FOREVER), log))
    assert child.running
    assert bystander.running


def test_an_unreadable_pid_file_does_not_matter(log: Path, children: list[Child]) -> None:
    log.parent.mkdir()
    log.with_suffix(".pid").write_text("")
    assert start(children, Launch("c", python(FOREVER), log)).running


def test_a_large_log_is_moved_aside_and_old_ones_dropped(log: Path, children: list[Child]) -> None:
    log.parent.mkdir()
    for generation in range(4):
        with log.open("wb") as big:
            big.truncate(LOG_BYTES)
            big.write(str(generation).encode())
        child = start(children, Launch("c", python("print('new')"), log))
        wait_until(lambda child=child: not child.running, 30, "the child ends")
    assert log.read_text() == "new\n"
    assert {each.name for each in log.parent.glob("child.log*")} == {"child.log", "child.log.1", "child.log.2"}
    assert [each.read_bytes()[:1] for each in (log.with_name("child.log.1"), log.with_name("child.log.2"))] == [
        b"3",
        b"2",
    ]


def test_a_program_that_does_not_exist_is_a_death_with_a_log(log: Path, children: list[Child]) -> None:
    child = start(children, Launch("c", ("/no/such/program",), log, is_ready=lambda: False))
    wait_until(lambda: not child.running, 10, "the child ends")
    assert child.exit_code == 1
    assert "cannot run /no/such/program: No such file" in log.read_text()


def test_starting_twice_is_starting_once(log: Path, children: list[Child]) -> None:
    child = start(children, Launch("c", python(FOREVER), log))
    pid = child.pid
    child.start()
    assert child.pid == pid
    assert os.getpgid(pid or 0) == pid, "a child leads its own group"
