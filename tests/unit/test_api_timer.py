"""Jobs of the server that are done again and again."""

from collections import Counter
from collections.abc import Iterator
from threading import Event

import pytest

from millrace.api.jobs.timer import start_jobs
from millrace.api.threads import Threads
from tests.support.waiting import wait_until


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads()
    yield threads
    threads.stop()


def test_each_job_is_repeated_at_its_own_pace(threads: Threads) -> None:
    done: Counter[str] = Counter()
    start_jobs(
        threads,
        {
            "often": (0.001, lambda: done.update(["often"])),
            "seldom": (3600.0, lambda: done.update(["seldom"])),
        },
    )
    wait_until(lambda: done["often"] >= 3, 10, "three rounds")
    assert done["seldom"] == 0


def test_a_job_that_hangs_and_a_job_that_fails_delay_no_other(threads: Threads) -> None:
    done: Counter[str] = Counter()
    hangs, released = Event(), Event()

    def hang() -> None:
        hangs.set()
        released.wait(30)

    def fail() -> None:
        done.update(["failed"])
        raise RuntimeError("always")

    try:
        start_jobs(
            threads,
            {"hangs": (0.001, hang), "fails": (0.001, fail), "works": (0.001, lambda: done.update(["worked"]))},
        )
        assert hangs.wait(10)
        wait_until(lambda: done["failed"] >= 2, 10, "a failing job that is tried again")
        before = done["worked"]
        wait_until(lambda: done["worked"] >= before + 3, 10, "the work of the other job")
    finally:
        released.set()
