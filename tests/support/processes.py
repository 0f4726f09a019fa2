"""Child processes of tests: each ends within a bound, whatever the test did, and none outlives the tests."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from millrace.embed import leash

STOP_SECONDS = 20.0
# The kernel needs a moment to end a killed process.
KILL_SECONDS = 10.0


def leashed(argv: Sequence[str]) -> list[str]:
    """The same command; the kernel kills it when this process ends, also when a time limit ended this process."""
    return [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *argv]


@contextmanager
def started(argv: Sequence[str], **more: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Like `with subprocess.Popen`, but the wait at the end of the context is bounded."""
    process = subprocess.Popen(leashed(argv), **more)
    seconds = 0.0
    try:
        yield process
        seconds = STOP_SECONDS
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        end(process, seconds)


def stop(process: "subprocess.Popen[Any]", seconds: float = STOP_SECONDS) -> int:
    """Asks it to end; the test fails if it does not, and the process is killed all the same."""
    process.terminate()
    code = end(process, seconds)
    assert code is not None, f"{process.args} did not end within {seconds:g} s of SIGTERM"
    return code


def end(process: "subprocess.Popen[Any]", seconds: float) -> int | None:
    """Waits so long, then kills it with all its children; its exit code, None if it had to be killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill_tree(process.pid)
        process.wait(KILL_SECONDS)
        return None


def _kill_tree(pid: int) -> None:
    try:
        parent = psutil.Process(pid)
        children = parent.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for member in (parent, *children):
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(children, KILL_SECONDS)
