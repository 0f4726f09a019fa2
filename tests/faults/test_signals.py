"""SIGINT and SIGTERM end every process of the platform in time, whatever it does, and leave no process behind."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from millrace.stopping import STOP_SIGNALS
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

EXIT_SECONDS = 20.0
# A platform needs about this long to be ready on a quiet machine.
START_SECONDS = 12.0
PARTS = ("data-plane", "managers")


@contextmanager
def ended_platform(home: Path) -> Iterator[RunningPlatform]:
    """Not started. Whatever the test does to it, nothing of it runs on."""
    platform = RunningPlatform(home, {})
    try:
        yield platform
    finally:
        for process in family(platform.process):
            process.kill()
        platform.process.wait(EXIT_SECONDS)


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    if process.poll() is not None:
        return []
    parent = psutil.Process(process.pid)
    return [*parent.children(recursive=True), parent]


def assert_all_gone(processes: list[psutil.Process], ends_at: float) -> None:
    _, alive = psutil.wait_procs(processes, max(0.0, ends_at - time.monotonic()))
    assert not alive, [" ".join(process.cmdline())[:200] for process in alive if process.is_running()]


def signal_and_wait(platform: RunningPlatform, number: signal.Signals) -> None:
    there = family(platform.process)
    ends_at = time.monotonic() + EXIT_SECONDS
    platform.process.send_signal(number)
    platform.process.wait(EXIT_SECONDS)
    assert_all_gone(there, ends_at)


@contextmanager
def load(platform: RunningPlatform, folder: Path) -> Iterator[None]:
    """Imports one after the other, in a process of its own, until the block ends."""
    target = platform.declare("busy", record("rows", ("id", "long"), ("text", "string"), key=("id",)))
    rows = folder / "rows.csv"
    rows.write_text("id,text\n" + "".join(f"{number},some text {number}\n" for number in range(200_000)))
    words = [sys.executable, "-m", "millrace.cli.main", "--home", str(platform.home.root), "import", target]
    sender = subprocess.Popen([*words, *[str(rows)] * 50], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: platform.client.imports.list(tenant="busy", limit=1), 60, "an import to be under way")
        yield
    finally:
        sender.kill()
        sender.wait(EXIT_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_a_platform_under_load(tmp_path: Path, number: signal.Signals) -> None:
    with ended_platform(tmp_path / "home") as platform:
        platform.start()
        with load(platform, tmp_path):
            signal_and_wait(platform, number)


@pytest.mark.slow
def test_signals_end_an_idle_platform_and_each_of_its_parts(tmp_path: Path) -> None:
    with ended_platform(tmp_path / "home") as platform:
        platform.start()
        for name in PARTS:
            for number in STOP_SIGNALS:
                part = platform.part(name)
                there = [*part.children(recursive=True), part]
                ends_at = time.monotonic() + EXIT_SECONDS
                part.send_signal(number)
                assert_all_gone(there, ends_at)
                wait_until(lambda part=part, name=name: platform.part(name).pid != part.pid, 60, f"another {name}")  # type: ignore[misc]
        signal_and_wait(platform, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_signals_at_random_moments_of_the_start(tmp_path: Path) -> None:
    chance = random.Random(11)
    for turn in range(12):
        with ended_platform(tmp_path / "home") as platform:
            platform.launch()
            time.sleep(chance.uniform(0.0, START_SECONDS))
            signal_and_wait(platform, STOP_SIGNALS[turn % 2])


def test_a_signal_during_the_start_ends_it(tmp_path: Path) -> None:
    with ended_platform(tmp_path / "home") as platform:
        platform.launch()
        wait_until(lambda: len(family(platform.process)) > 2, 60, "the first processes to run")
        signal_and_wait(platform, signal.SIGINT)
