"""What the ingestion managers do next, moment by moment."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millrace.manage.deciding import Going, Skip, Standing, Start, Stop, decide, next_due, pause_after
from millrace.manage.schedule_position import SchedulePosition
from millrace.model.agreement import Schedule

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def batch(missed: str = "run_once", **more: object) -> Standing:
    return replace(Standing(1, "batch", Schedule("*/10 * * * *", missed=missed), NOON), **more)  # type: ignore[arg-type]


def stream(**more: object) -> Standing:
    return replace(Standing(1, "stream", None, NOON), **more)  # type: ignore[arg-type]


def test_nothing_runs_before_its_moment() -> None:
    assert decide(batch(), at(9.99)) == ()


def test_a_run_begins_at_its_moment_and_settles_it() -> None:
    assert decide(batch(), at(10)) == (Start("schedule", at(10), at(10)),)
    assert decide(batch(handled_until=at(10)), at(10.1)) == ()


def test_the_time_zone_decides_when_noon_is() -> None:
    standing = replace(batch(), schedule=Schedule("0 12 * * *", "Europe/Helsinki"))
    assert next_due(standing) == datetime(2026, 11, 16, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize("in_app", [True, False])
def test_a_run_that_is_going_is_not_started_twice(in_app: bool) -> None:
    assert decide(batch(going=Going(1, NOON, in_app)), at(35)) == ()


def test_missed_runs_are_skipped() -> None:
    assert decide(batch("skip"), at(35)) == (Skip(3, at(30)),)
    assert decide(batch("skip"), at(30.5)) == (Skip(2, at(20)), Start("schedule", at(30), at(30)))


def test_missed_runs_are_made_up_for_by_one() -> None:
    assert decide(batch("run_once"), at(35)) == (Skip(2, at(20)), Start("schedule", at(30), at(30)))


def test_missed_runs_are_all_made_up_for_in_order() -> None:
    standing, begun = batch("run_all"), []
    while actions := decide(standing, at(35)):
        [start] = actions
        assert isinstance(start, Start)
        begun.append(start.due_at)
        standing = replace(standing, handled_until=start.handled_until or NOON)
    assert begun == [at(10), at(20), at(30)]


def test_a_year_of_missed_moments_is_bounded() -> None:
    standing = replace(batch("run_all"), schedule=Schedule("@every 1h", missed="run_all"))
    [start] = decide(standing, NOON + timedelta(days=365))
    assert isinstance(start, Start)
    assert start.due_at == NOON + timedelta(days=365) - timedelta(hours=999)


def test_another_schedule_begins_anew_and_the_same_one_goes_on_behind_a_restart(tmp_path: Path) -> None:
    hourly, daily = Schedule("0 * * * *"), Schedule("0 0 * * *")
    SchedulePosition(tmp_path / "schedule.json").follow(hourly, NOON)
    again = SchedulePosition(tmp_path / "schedule.json")
    again.follow(hourly, at(90))
    assert again.until == NOON
    again.follow(daily, at(90))
    assert SchedulePosition(tmp_path / "schedule.json").until == at(90)
    again.follow(None, at(95))
    again.follow(daily, at(99))
    assert again.until == at(99)


def test_a_run_that_is_asked_for_waits_for_the_one_under_way() -> None:
    assert decide(batch(is_asked=True), at(1)) == (Start("asked"),)
    assert decide(batch(is_asked=True, schedule=None), at(1)) == (Start("asked"),)
    assert decide(batch(is_asked=True, going=Going(1, NOON)), at(1)) == ()


def test_a_run_that_takes_too_long_is_stopped_once() -> None:
    going = Going(1, NOON)
    standing = batch(going=going, longest_run=timedelta(minutes=5))
    assert decide(standing, at(4)) == ()
    assert isinstance(decide(standing, at(6))[0], Stop)
    assert decide(replace(standing, going=replace(going, stopping=True)), at(6)) == ()


def test_a_stream_is_started_at_once_and_then_with_longer_and_longer_pauses() -> None:
    assert decide(stream(), NOON) == (Start("stream"),)
    assert [pause_after(endings).total_seconds() for endings in range(10)] == [0, 0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    ended = stream(endings=3, ended_at=NOON)
    assert decide(ended, NOON + timedelta(seconds=1.9)) == ()
    assert decide(ended, NOON + timedelta(seconds=2)) == (Start("stream"),)


def test_a_stream_is_stopped_when_its_agreement_changes_or_goes_and_a_batch_run_only_when_it_goes() -> None:
    assert decide(stream(going=Going(1, NOON)), at(9999)) == ()
    assert isinstance(decide(stream(revision=2, going=Going(1, NOON)), NOON)[0], Stop)
    assert isinstance(decide(stream(mode=None, going=Going(1, NOON)), NOON)[0], Stop)
    assert decide(batch(revision=2, going=Going(1, NOON)), at(1)) == ()
    assert isinstance(decide(batch(mode=None, going=Going(1, NOON)), at(1))[0], Stop)
    assert decide(batch(mode=None), at(99)) == ()
