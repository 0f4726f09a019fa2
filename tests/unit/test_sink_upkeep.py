"""When a table is due for upkeep."""

from pathlib import Path

import pyarrow as pa
import pytest

from millrace.lake.schema import TableSpec
from millrace.sink.delta import upkeep as upkeep_module
from millrace.sink.delta.upkeep import COMMITS, LARGE_COMMIT_ROWS, LONGEST_WAIT_SECONDS, PAUSE_SECONDS, ROWS, Upkeep

SPEC = TableSpec("t", pa.schema([("id", pa.int64())]), key=("id",))
ROOT = Path("somewhere")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(upkeep_module, "time", clock)
    return clock


def test_many_small_commits_make_a_table_due_once(clock: Clock) -> None:
    upkeep = Upkeep()
    for _ in range(COMMITS - 1):
        upkeep.note(ROOT, SPEC, 1)
    assert upkeep.take_due() == []
    upkeep.note(ROOT, SPEC, 1)
    assert upkeep.take_due() == [(ROOT, SPEC, None)]
    assert upkeep.take_due() == []


def test_upkeep_waits_for_a_pause_of_large_loads(clock: Clock) -> None:
    upkeep = Upkeep()
    upkeep.note(ROOT, SPEC, ROWS)
    assert upkeep.take_due() == []
    clock.now += PAUSE_SECONDS + 1
    assert upkeep.take_due() == [(ROOT, SPEC, None)]


def test_upkeep_does_not_wait_for_ever(clock: Clock) -> None:
    upkeep = Upkeep()
    upkeep.note(ROOT, SPEC, ROWS)
    clock.now += LONGEST_WAIT_SECONDS + 1
    upkeep.note(Path("other"), SPEC, LARGE_COMMIT_ROWS)
    assert upkeep.take_due() == [(ROOT, SPEC, None)]
