"""Pauses between attempts, and which events a subscription wants."""

import pytest

from millrace.model.errors import Invalid
from millrace.notify.retry import RetryPolicy
from millrace.notify.subscription import Subscription, checked_order, checked_types

PACE = RetryPolicy(first_pause=2, longest_pause=60, oldest=3600)


def test_pauses_double_up_to_the_longest() -> None:
    assert [PACE.pause(attempts, chance=1) for attempts in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
    assert PACE.pause(100_000, chance=1) == 60


def test_pauses_are_spread_by_half() -> None:
    assert PACE.pause(3, chance=0) == 4
    drawn = {PACE.pause(3) for _ in range(200)}
    assert len(drawn) > 100
    assert all(4 <= pause <= 8 for pause in drawn)


def test_a_target_may_ask_for_more_time_but_not_for_ever() -> None:
    assert PACE.pause(1, retry_after=30, chance=1) == 30
    assert PACE.pause(1, retry_after=1, chance=1) == 2
    assert PACE.pause(1, retry_after=10**9, chance=1) == 60


def test_an_event_is_tried_for_days_and_not_for_ever() -> None:
    assert not PACE.is_too_old(3600)
    assert PACE.is_too_old(3601)


def wants(types: list[str], event_type: str) -> bool:
    patterns = tuple(checked_types(types))
    return Subscription("s", "acme", "hook", "https://example.org", patterns, "in_order", True, ()).wants(event_type)


@pytest.mark.parametrize(
    ("types", "event_type", "expected"),
    [
        (["*"], "millrace.import.completed", True),
        (["import.*"], "millrace.import.completed", True),
        (["millrace.import.*"], "millrace.import.completed", True),
        (["import.*"], "millrace.span.ended", False),
        (["import.*", "span.ended"], "millrace.span.ended", True),
        (["span.ended"], "millrace.span.ended", True),
        (["span.end"], "millrace.span.ended", False),
        (["*.completed"], "millrace.import.completed", True),
        (["*.completed"], "millrace.import.failed", False),
        (["import"], "millrace.import.completed", False),
    ],
)
def test_patterns_choose_events(types: list[str], event_type: str, expected: bool) -> None:
    assert wants(types, event_type) is expected


@pytest.mark.parametrize(
    "types", [[], ["Import.*"], [""], ["a..b"], ["import.**"], ["(a+)+$"], ["a"] * 21, ["x" * 9 + "!"]]
)
def test_patterns_that_name_nothing_are_refused(types: list[str]) -> None:
    with pytest.raises(Invalid):
        checked_types(types)


def test_an_order_is_one_of_two() -> None:
    assert checked_order("as_they_come") == "as_they_come"
    with pytest.raises(Invalid, match="in_order"):
        checked_order("sorted")
