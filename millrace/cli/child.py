"""`millrace up` as a child process: ready when the block begins, stopped when it ends. It dies with its parent."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from millrace.embed import leash
from millrace.model.errors import Unavailable

READY_SECONDS = 180.0
STOP_SECONDS = 30.0
REAP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ChildPlatform:
    """`startup_seconds`: from launch to ready."""

    home: Path
    url: str
    process: subprocess.Popen[str]
    startup_seconds: float


@contextmanager
def running_platform(home: Path, environ: Mapping[str, str] | None = None) -> Iterator[ChildPlatform]:
    """Stops it in the end, as Ctrl-C would, and by force if that takes too long."""
    home.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    process = _launch(home, environ or {})
    try:
        yield ChildPlatform(home, _wait_ready(process, home), process, time.monotonic() - begun)
    finally:
        _stop(process)


def _launch(home: Path, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid())]
    command = [sys.executable, "-m", "millrace.cli.main", "--home", str(home), "up", "--port", "0"]
    # In a session of its own: Ctrl-C reaches the parent alone, which then stops the child in order.
    return subprocess.Popen(
        [*leashed, *command],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environ},
        start_new_session=True,
    )


def _wait_ready(process: subprocess.Popen[str], home: Path) -> str:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None
    threading.Thread(target=_drain, args=(process.stdout, lines), daemon=True).start()
    ends = time.monotonic() + READY_SECONDS
    while True:
        try:
            line = lines.get(timeout=max(0.0, ends - time.monotonic()))
        except queue.Empty:
            raise _not_ready(home, f"was not ready within {READY_SECONDS:g} s") from None
        if line.startswith("ready "):
            return line.split()[1]
        if not line:
            raise _not_ready(home, f"ended with code {process.wait(REAP_SECONDS)} before it was ready")


def _drain(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _not_ready(home: Path, what: str) -> Unavailable:
    return Unavailable(f"The platform {what}.", remedy=f"Its logs say why: {home / 'logs'}")


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(REAP_SECONDS)
