"""A request to stop never waits for a lock, whatever the main thread holds when the signal comes."""

import ast
import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import IO

import psutil
import pytest

import millrace
from millrace.stopping import STOP_SIGNALS, StopRequest

TIMES = 500
EXIT_SECONDS = 20.0
# Modules with signal handlers, each looked at: a flag and a pipe; an exception; a signal passed on; a signal ignored.
WITH_HANDLERS = {"stopping.py", "deliver/budget.py", "manage/confine/launch.py", "bounded/nursery.py"}

SUPERVISOR = textwrap.dedent("""
    import signal, sys
    from pathlib import Path
    from millrace.embed import supervisor
    from millrace.embed.process import Child, Launch
    # The main thread hardly leaves the wait, so that most signals meet it there.
    supervisor.WATCH_PAUSE_SECONDS = 0.0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for turn in range(int(sys.argv[2])):
        children = [Child(Launch(name, ("/bin/sleep", "600"), Path(sys.argv[1]) / f"{name}.log")) for name in "ab"]
        sys.stdin.readline()
        print("begin", flush=True)
        supervisor.Supervisor(children, supervisor.RestartPolicy(), lambda event: None).run()
        print("end", flush=True)
""")


def test_only_known_modules_handle_signals() -> None:
    root = Path(millrace.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("signal.signal", "loop.add_signal_handler")
    }
    assert found == WITH_HANDLERS


def test_a_wait_ends_when_the_request_is_made() -> None:
    request = StopRequest()
    assert not request.wait(0.0)
    threading.Timer(0.05, request.make).start()
    begun = time.monotonic()
    assert request.wait(20.0)
    assert time.monotonic() - begun < 10.0
    assert request.is_made()


def test_more_requests_than_a_pipe_holds_do_not_block() -> None:
    request = StopRequest()
    for _ in range(100_000):
        request.make()
    assert request.wait(0.0)


def test_a_process_that_does_not_heed_the_request_is_ended(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import threading
        from millrace.stopping import StopRequest
        request = StopRequest()
        request.heed_signals()
        request.exit_within(0.1)
        print("up", flush=True)
        threading.Lock().acquire() and threading.Event().wait()
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert next_line(process, EXIT_SECONDS) == "up"
        process.send_signal(signal.SIGTERM)
        assert process.wait(EXIT_SECONDS) == 1
    finally:
        process.kill()
        process.wait(EXIT_SECONDS)


@pytest.mark.timeout(600)
def test_signals_at_random_moments_stop_a_supervisor_with_children(tmp_path: Path) -> None:
    """Start, watching and stopping are all hit: a turn lasts about as long as the longest delay."""
    chance = random.Random(7)
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path), str(TIMES)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdin is not None
    try:
        for turn in range(TIMES):
            process.stdin.write("\n")
            assert next_line(process, EXIT_SECONDS) == "begin", turn
            time.sleep(chance.uniform(0.0, 0.06))
            stop_and_wait(process, chance.choice(STOP_SIGNALS))
        assert process.wait(EXIT_SECONDS) == 0
    finally:
        left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait(EXIT_SECONDS)
        for orphan in left:
            orphan.kill()


def stop_and_wait(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """A signal that comes before the supervisor listens is lost on purpose, so it is sent again."""
    ends_at = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < ends_at:
        process.send_signal(number)
        line = next_line(process, 0.2)
        if line == "end":
            assert psutil.Process(process.pid).children() == []
            return
    raise AssertionError(f"No exit within {EXIT_SECONDS} s after {number.name}.")


def next_line(process: subprocess.Popen[str], seconds: float) -> str | None:
    """None if there is no whole line in time."""
    stream: IO[str] | None = process.stdout
    assert stream is not None
    line = b""
    ends_at = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream.fileno()], [], [], max(0.0, ends_at - time.monotonic()))
        if not ready:
            return None
        byte = os.read(stream.fileno(), 1)
        if not byte:
            return None
        line += byte
    return line.decode().strip()
