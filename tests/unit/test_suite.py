"""The test run itself: every promise has a test, a test that hangs costs itself alone, child processes end in time."""

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support import processes
from tests.support.processes import end, started
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
# Ignores SIGTERM, as its child does.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
HANGING = """
import subprocess, sys, pathlib, threading
import pytest
from tests.support.processes import leashed

@pytest.mark.timeout(2)
def test_hangs():
    child = subprocess.Popen(leashed([sys.executable, "-c", "import time; time.sleep(600)"]))
    pathlib.Path(__file__).with_name("child").write_text(str(child.pid))
    threading.Event().wait()

def test_passes():
    pass
"""


def promises() -> list[str]:
    """The rows of the README's table."""
    _, _, behind = (ROOT / "README.md").read_text().partition("## What you can rely on\n")
    lines = behind.partition("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("| ") and "---" not in line][1:]


@pytest.mark.parametrize("promise", promises(), ids=lambda row: row.split("|")[1].strip()[:40])
def test_make_test_runs_a_test_of_every_promise(promise: str) -> None:
    modules = [ROOT / path for path in re.findall(r"`(tests/[^`]+)`", promise)]
    assert modules
    for module in modules:
        assert "pytestmark" not in module.read_text(), f"{module} is not for make test"


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_stubborn_process_ends_with_its_children() -> None:
    with started([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert end(process, 0.1) is None
        wait_until(lambda: is_gone(child), 30, "the child to end")


def test_a_block_does_not_wait_for_ever_for_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.1)
    begun = time.monotonic()
    with started([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        pass
    assert process.returncode == -9
    assert time.monotonic() - begun < 60


def test_a_test_that_hangs_ends_and_the_others_still_run(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    options = ["-p", "tests.conftest", "-n", "1", "-q", "--timeout-method=thread", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_hanging.py")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())), 30, "the child of the test to end")
