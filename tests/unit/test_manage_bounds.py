"""Limits that process 1 of a program looks after: whatever the program does, it is looked at, and a look ends soon."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from millrace.manage.confine import bounds, launch
from millrace.manage.confine.bounds import ProgramBounds

# Process 1 of a world without namespaces: orphans become its children all the same. The program
# would end by itself after 10 s.
WATCHED = """
import ctypes, os, signal, time
from millrace.manage.confine import launch
looks = 0
def look():
    global looks
    looks += 1
    return ("too much" if looks == 3 else None), 0.2
ctypes.CDLL(None).prctl(36, 1)
reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
signal.set_wakeup_fd(writing)
signal.signal(signal.SIGCHLD, lambda *_: None)
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.01)
            os._exit(0)
        os.wait()
        time.sleep(0.002)
    os._exit(0)
launch._watch(child, reading, look)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="programs are confined on Linux alone")
def test_a_program_whose_processes_end_all_the_time_is_looked_at() -> None:
    ended = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (launch.KILLED, "millrace: ended: the program uses too much\n")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("in", "out", "log"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("folder", ["in", "out", "log"])
def test_the_number_of_files_is_bounded(source: Path, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_PAUSE_SECONDS", 0)
    for number in range(50):
        (source / "in" / f"given{number}").touch()
    program = ProgramBounds(str(source), None, 1 << 30, 10)
    inner = source / folder / "a" / "b"
    inner.mkdir(parents=True)
    for number in range(8):
        (inner / str(number)).touch()
    assert program.breach()[0] is None, "what was in `in` before does not count"
    (inner / "one more").touch()
    assert "files and folders" in (program.breach()[0] or "")


def test_many_files_do_not_put_off_the_next_look_for_long(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        """Each look takes an hour."""
        nonlocal now
        now += 1800
        return now

    program = ProgramBounds(str(source), None, 4096, 100)
    monkeypatch.setattr(time, "monotonic", clock)
    assert program.breach() == (None, bounds.LONGEST_PAUSE_SECONDS)
    (source / "out" / "large").write_bytes(bytes(200_000))
    monkeypatch.setattr(time, "monotonic", lambda: now + bounds.LONGEST_PAUSE_SECONDS)
    assert "bytes of disk" in (program.breach()[0] or "")


def test_disk_is_counted_in_all_three_folders(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_PAUSE_SECONDS", 0)
    (source / "in" / "given").write_bytes(bytes(200_000))
    program = ProgramBounds(str(source), None, 400_000, 100)
    (source / "out" / "a").mkdir()
    (source / "out" / "a" / "b").write_bytes(bytes(200_000))
    assert program.breach()[0] is None
    for name in ("in", "log"):
        (source / name / "more").write_bytes(bytes(100_000))
    assert "bytes of disk, and may use 400,000" in (program.breach()[0] or "")


def test_a_program_has_time_to_remove_what_an_earlier_run_left(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_PAUSE_SECONDS", 0)
    (source / "out" / "left").write_bytes(bytes(200_000))
    program = ProgramBounds(str(source), None, 100_000, 100)
    assert program.breach()[0] is None
    (source / "out" / "more").write_bytes(bytes(10_000))
    assert "bytes of disk" in (program.breach()[0] or ""), "but not to add to it"
    (source / "out" / "more").unlink()
    assert program.breach()[0] is None
    later = time.monotonic() + bounds.CLEARING_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert "bytes of disk" in (program.breach()[0] or "")
    (source / "out" / "left").unlink()
    assert program.breach()[0] is None
