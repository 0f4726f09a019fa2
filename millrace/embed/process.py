"""One child process: what to launch in, a running, ready, stopped or killed process group out.

A child dies with the thread that started it; what an earlier, killed run left behind is ended before the next start."""

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from millrace.atomic import replace_file
from millrace.embed import leash

LOG_BYTES = 16 * 1024 * 1024
KEPT_LOGS = 2
# The kernel needs a moment to tear a killed group down; longer means it hangs in a system call.
REAP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to run one program, how to know that it is ready and how long it may take to start and to stop."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    is_ready: Callable[[], bool] = lambda: True
    ready_seconds: float = 60.0
    stop_seconds: float = 15.0
    stop_signal: signal.Signals = signal.SIGTERM


class Child:
    """A process group that is started, watched and ended as one."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs and before it was started; negative for a signal."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Launch it, unless it runs; the calling thread must outlive it."""
        if self.running:
            return
        launch = self.launch
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        if self._process is None:
            end_left_over(launch.log)
        _rotate(launch.log)
        argv = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *launch.argv]
        with launch.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, **launch.env},
                cwd=launch.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _remember(launch.log, self._process.pid)

    def probe(self) -> bool:
        """Whether it runs and answers now."""
        return self.running and self.launch.is_ready()

    def stop(self, most_seconds: float = math.inf) -> None:
        """Ask it to end, then kill what is left of its group. It gets its own `stop_seconds`, or `most_seconds` if less."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(self.launch.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(self.launch.stop_seconds, most_seconds))
        self.kill()

    def kill(self) -> None:
        """End the whole group at once; also clears what a dead child left running."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(REAP_SECONDS)
        _pid_file(self.launch.log).unlink(missing_ok=True)


def _rotate(log: Path) -> None:
    """Move a log that has grown large aside, keeping the newest few."""
    if not log.exists() or log.stat().st_size < LOG_BYTES:
        return
    for number in range(KEPT_LOGS, 0, -1):
        older = log.with_name(f"{log.name}.{number - 1}") if number > 1 else log
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number}"))


def _pid_file(log: Path) -> Path:
    return log.with_suffix(".pid")


def _remember(log: Path, pid: int) -> None:
    """Write down which process runs, with its start time: process numbers are used again."""
    with contextlib.suppress(psutil.NoSuchProcess):
        replace_file(_pid_file(log), f"{pid} {psutil.Process(pid).create_time()}\n")


def end_left_over(log: Path) -> None:
    """Kill the group that an earlier, killed run with this log wrote down, if it is still the same process."""
    try:
        pid, created = _pid_file(log).read_text().split()
        left_over = psutil.Process(int(pid))
        if abs(left_over.create_time() - float(created)) < 1.0:
            os.killpg(left_over.pid, signal.SIGKILL)
            left_over.wait(REAP_SECONDS)
    except (FileNotFoundError, ValueError, ProcessLookupError, psutil.NoSuchProcess):
        return
