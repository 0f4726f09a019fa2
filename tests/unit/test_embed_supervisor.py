"""Several children kept alive in order."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.embed.errors import ChildFailed
from millrace.embed.process import Child, Launch
from millrace.embed.supervisor import Event, Happening, RestartPolicy, Supervisor
from tests.support.processes import started
from tests.support.waiting import wait_until

FOREVER = (sys.executable, "-c", "import time; time.sleep(600)")
QUICK = RestartPolicy(budget=2, window_seconds=60, first_pause_seconds=0.01, longest_pause_seconds=0.02)


def child(tmp_path: Path, name: str, is_ready: Callable[[], bool] = lambda: True, **options: float) -> Child:
    return Child(Launch(name, FOREVER, tmp_path / f"{name}.log", is_ready=is_ready, **options))  # type: ignore[arg-type]


@contextmanager
def running(supervisor: Supervisor) -> Iterator[threading.Event]:
    """In a thread that ends, with all children, before the block does."""
    ready = threading.Event()
    thread = threading.Thread(target=supervisor.run, args=(ready.set,))
    thread.start()
    try:
        yield ready
    finally:
        supervisor.request_stop()
        thread.join(30)
        assert not thread.is_alive()


def told(events: list[Event]) -> list[str]:
    return [f"{event.child} {event.happening}" for event in events]


def test_start_in_order_stop_in_reverse(tmp_path: Path) -> None:
    events: list[Event] = []
    first, second = child(tmp_path, "first"), child(tmp_path, "second")
    with running(Supervisor([first, second], QUICK, events.append)) as ready:
        assert ready.wait(20)
        assert told(events) == ["first started", "first ready", "second started", "second ready"]
    assert told(events)[4:] == ["second stopping", "second stopped", "first stopping", "first stopped"]
    assert not first.running
    assert not second.running


def test_the_dead_one_is_restarted_and_the_other_left_alone(tmp_path: Path) -> None:
    events: list[Event] = []
    first, second = child(tmp_path, "first"), child(tmp_path, "second")
    with running(Supervisor([first, second], QUICK, events.append)) as ready:
        assert ready.wait(20)
        killed, kept = first.pid, second.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: told(events).count("first ready") == 2, 20, "first is ready again")
        assert first.pid != killed
        assert second.pid == kept
    death = next(event for event in events if event.happening is Happening.DIED)
    assert death == Event("first", Happening.DIED, killed, -signal.SIGKILL, QUICK.first_pause_seconds)


def test_one_that_is_late_is_started_anew(tmp_path: Path) -> None:
    events: list[Event] = []
    slow = child(tmp_path, "slow", lambda: told(events).count("slow started") == 2, ready_seconds=0.3)
    with running(Supervisor([slow], QUICK, events.append)) as ready:
        assert ready.wait(20)
    assert told(events) == ["slow started", "slow late", "slow started", "slow ready", "slow stopping", "slow stopped"]


def test_the_budget_ends_and_nothing_is_left_running(tmp_path: Path) -> None:
    events: list[Event] = []
    steady = child(tmp_path, "steady")
    failing = Child(Launch("failing", (sys.executable, "-c", "raise SystemExit(3)"), tmp_path / "failing.log"))
    with pytest.raises(ChildFailed, match="failing failed 3 times within 60 s, last with code 3"):
        Supervisor([steady, failing], QUICK, events.append).run()
    assert not steady.running
    assert [event.retry_seconds for event in events if event.happening is Happening.DIED] == [0.01, 0.02, None]


def test_pauses_double_up_to_the_longest() -> None:
    policy = RestartPolicy(first_pause_seconds=0.5, longest_pause_seconds=3)
    assert [policy.pause_seconds(restarts) for restarts in range(5)] == [0.5, 1, 2, 3, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_in_order(tmp_path: Path, number: signal.Signals) -> None:
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from millrace.embed.process import Child, Launch
        from millrace.embed.supervisor import RestartPolicy, Supervisor
        sleep = (sys.executable, "-c", "import time; time.sleep(600)")
        children = [Child(Launch(name, sleep, Path(sys.argv[1]) / f"{name}.log")) for name in ("a", "b")]
        tell = lambda event: print(event.child, event.happening, flush=True)
        Supervisor(children, RestartPolicy(), tell).run(lambda: print("all ready", flush=True))
        print("returned", flush=True)
    """)
    command = [sys.executable, "-c", code, str(tmp_path)]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "all ready\n" in lines
        process.send_signal(number)
        assert list(lines) == ["b stopping\n", "b stopped\n", "a stopping\n", "a stopped\n", "returned\n"]
    assert process.returncode == 0


def test_a_request_to_stop_during_the_start_is_heard(tmp_path: Path) -> None:
    never = child(tmp_path, "never", lambda: False)
    supervisor = Supervisor([never], QUICK, [].append)
    with running(supervisor) as ready:
        wait_until(lambda: never.running, 20, "it was started")
    assert not ready.is_set()
    assert not never.running
