"""Which imports a batch passes over: the same ones each time it is run."""

from pathlib import Path

import pytest

from millrace.exchange.home import Home
from millrace.exchange.places import Places
from millrace.exchange.stops import StopList
from millrace.plane.checkpoints import Stops

PLANNED_MS = 1_800_000_000_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.stops.mkdir()
    offsets = home.checkpoints / "validate-bulk" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").write_text(f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{PLANNED_MS},"conf":{{}}}}\n{{}}')
    return home


def passed_over(home: Home, import_id: str) -> bool:
    return Stops(StopList(home), Places(home).checkpoint("validate-bulk"), "7").include(import_id)


@pytest.mark.parametrize(("later_ms", "expected"), [(-1, True), (0, True), (1, False)])
def test_a_stop_counts_for_batches_planned_after_it(home: Home, later_ms: int, expected: bool) -> None:
    (home.stops / "imp_a").write_text(str(PLANNED_MS + later_ms))
    assert passed_over(home, "imp_a") is expected
    assert passed_over(home, "imp_b") is False


def test_a_mark_without_a_moment_is_older_than_any_batch(home: Home) -> None:
    (home.stops / "imp_a").touch()
    assert passed_over(home, "imp_a")


def test_a_stop_asked_for_again_keeps_its_moment(home: Home) -> None:
    files = StopList(home)
    (home.stops / "imp_a").write_text(str(PLANNED_MS - 5))
    files.stop("imp_a")
    assert passed_over(home, "imp_a")
    files.stop("imp_b")
    assert int((home.stops / "imp_b").read_text()) > 1_700_000_000_000
