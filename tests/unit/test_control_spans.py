"""Spans: BEGIN before the first member, END once after the last, ABORTED when one of them cannot complete."""

from typing import Any

import pytest

from millrace.control.state import ABORTED, ENDED, ENDING, OPEN
from millrace.model.ops.imports import CancelImport
from millrace.model.ops.spans import AbortSpan, BeginSpan, EndSpan, ExpireSpan
from millrace.model.ops.tables import DropTable
from tests.support.control import COUNTS, NOON, TableLog, refusal


@pytest.fixture
def log() -> TableLog:
    """A concurrent table, an exclusive one, and an open span."""
    made = TableLog()
    made.define()
    made.define("turns", concurrency="exclusive")
    begin(made, "night")
    return made


def begin(log: TableLog, name: str) -> Any:
    return log.apply(BeginSpan, name, lease_seconds=60)


def end(log: TableLog, name: str) -> Any:
    return log.apply(EndSpan, name)


def spans_told(log: TableLog) -> list[tuple[str, str]]:
    return [(told.type, told.subject) for kind in ("begun", "ended", "aborted") for told in log.events(f"span.{kind}")]


def aborted_for(log: TableLog, name: str) -> str:
    [told] = [one for one in log.events("span.aborted") if one.subject == name]
    return str(told.data["error"]["member"])


def test_a_span_without_members_ends_when_it_is_asked_to(log: TableLog) -> None:
    assert end(log, "night").result.to_dict() == {"span": "night", "state": ENDED}
    assert end(log, "night").result.state == ENDED
    assert spans_told(log) == [("span.begun", "night"), ("span.ended", "night")]


def test_a_span_ends_when_the_last_member_has(log: TableLog) -> None:
    log.begin("imp_1", span="night")
    log.begin("imp_2", "turns", span="night")
    assert end(log, "night").result.state == ENDING
    log.now_us = NOON + 5_000_000
    log.settle("imp_1")
    assert log.span("night").state == ENDING
    log.settle("imp_2", read=5, accepted=5, rejected=0)
    [told] = log.events("span.ended")
    assert told.data["rows"] == {"read": 15, "accepted": 14, "rejected": 1, "ignored": 0}
    assert told.data["imports"] == 2
    interval = told.data["interval"]
    assert (interval["begun_us"], interval["ended_us"], interval["seconds"]) == (NOON, NOON + 5_000_000, 5.0)
    assert (interval["begun_at"], interval["ended_at"]) == ("2023-11-14T22:13:20+00:00", "2023-11-14T22:13:25+00:00")
    log.settle("imp_2")
    assert len(log.events("span.ended")) == 1


def test_members_that_have_ended_do_not_end_an_open_span(log: TableLog) -> None:
    log.load("imp_1", span="night")
    assert log.span("night").state == OPEN
    log.load("imp_2", span="night")
    end(log, "night")
    assert log.events("span.ended")[0].data["imports"] == 2


def test_streamed_rows_join_a_span(log: TableLog) -> None:
    log.append("imp_1", 1, 3, span="night")
    end(log, "night")
    assert log.span("night").state == ENDING
    log.settle("imp_1")
    assert log.span("night").state == ENDED


@pytest.mark.parametrize("state", ["ending", "ended"])
def test_who_comes_too_late_is_refused_and_spoils_nothing(log: TableLog, state: str) -> None:
    log.begin("imp_1", span="night")
    end(log, "night")
    if state == "ended":
        log.settle("imp_1")
    assert refusal(log.begin("imp_2", span="night")) == "span_over"
    assert refusal(begin(log, "night")) == "span_over"
    assert refusal(begin(log, "night/late")) == "span_over"
    assert "imp_2" not in log.store.imports
    if state == "ending":
        log.settle("imp_1")
    assert spans_told(log) == [("span.begun", "night"), ("span.ended", "night")]


def test_a_span_that_was_never_begun_cannot_be_joined_or_ended(log: TableLog) -> None:
    assert refusal(log.begin("imp_1", span="day")) == "no_span"
    assert refusal(end(log, "day")) == "no_span"
    assert refusal(log.apply(ExpireSpan, "day")) == "no_span"


def test_begun_again_it_is_the_same_span(log: TableLog) -> None:
    log.begin("imp_1", span="night")
    assert begin(log, "night").result.to_dict() == {"span": "night", "state": OPEN, "repeated": True}
    assert log.span("night").open_members == 1


@pytest.mark.parametrize(
    ("how", "code"),
    [("refused", "no_table"), ("failed", "failed"), ("cancelled", "cancelled")],
)
def test_a_member_that_cannot_complete_aborts_the_span_and_is_named(log: TableLog, how: str, code: str) -> None:
    log.begin("imp_1", span="night")
    end_state = {"failed": {"accepted": 0, "rejected": 10}, "cancelled": {}}
    if how == "refused":
        log.begin("imp_2", "nowhere", span="night")
        member = "begin_import of acme/nowhere"
    else:
        if how == "cancelled":
            log.apply(CancelImport, "imp_1")
        log.settle("imp_1", **end_state[how])
        member = "imp_1"
    assert log.span("night").state == ABORTED
    assert aborted_for(log, "night") == member
    assert log.events("span.aborted")[0].data["error"]["code"] == code
    end(log, "night")
    log.settle("imp_1")
    assert spans_told(log) == [("span.begun", "night"), ("span.aborted", "night")]


def test_rows_out_of_step_are_no_reason_to_abort(log: TableLog) -> None:
    log.append("imp_1", 1, 3, span="night")
    assert refusal(log.append("imp_2", 1, 3, span="night")) == "out_of_step"
    end(log, "night")
    log.settle("imp_1")
    assert log.events("span.ended")[0].data["imports"] == 1


def test_abort_is_told_once_with_its_reason(log: TableLog) -> None:
    log.begin("imp_1", span="night")
    assert log.apply(AbortSpan, "night", reason="no more").result.state == ABORTED
    log.apply(AbortSpan, "night")
    assert [told.data["error"]["message"] for told in log.events("span.aborted")] == ["no more"]
    assert refusal(log.begin("imp_2", span="night")) == "span_over"
    log.settle("imp_1")
    assert log.span("night").open_members == 0


def test_an_unused_span_expires(log: TableLog) -> None:
    assert log.apply(ExpireSpan, "night").result.state == ABORTED
    assert aborted_for(log, "night") == "night"


@pytest.mark.parametrize("asked_to_end", [False, True])
def test_a_span_that_came_into_use_does_not_expire(log: TableLog, asked_to_end: bool) -> None:
    log.begin("imp_1", span="night")
    if asked_to_end:
        end(log, "night")
    log.apply(ExpireSpan, "night")
    assert not log.span("night").is_over
    end(log, "night")
    log.settle("imp_1")
    assert log.span("night").state == ENDED


def test_each_level_of_a_name_is_a_span(log: TableLog) -> None:
    begin(log, "a/b/c")
    assert [told.subject for told in log.events("span.begun")] == ["night", "a", "a/b", "a/b/c"]
    log.begin("imp_1", span="a/b/c")
    end(log, "a")
    end(log, "a/b/c")
    log.settle("imp_1")
    assert log.span("a/b/c").state == ENDED
    assert (log.span("a/b").state, log.span("a").state) == (OPEN, ENDING)
    end(log, "a/b")
    assert [told.subject for told in log.events("span.ended")] == ["a/b/c", "a/b", "a"]
    assert all(told.data["imports"] == 1 for told in log.events("span.ended"))
    assert all(told.data["rows"]["accepted"] == COUNTS.accepted for told in log.events("span.ended"))


def test_a_level_in_the_middle_aborts_all_above_and_none_beside(log: TableLog) -> None:
    begin(log, "a/b/c")
    begin(log, "a/x")
    log.begin("imp_1", span="a/b")
    log.settle("imp_1", accepted=0, rejected=10)
    assert [told.subject for told in log.events("span.aborted")] == ["a/b", "a"]
    assert {told.data["error"]["member"] for told in log.events("span.aborted")} == {"imp_1"}
    assert (log.span("a/b/c").state, log.span("a/x").state) == (OPEN, OPEN)
    assert refusal(begin(log, "a/y")) == "span_over"
    end(log, "a/x")
    assert log.span("a/x").state == ENDED
    assert log.span("a").state == ABORTED


def test_below_an_aborted_level_nothing_can_join(log: TableLog) -> None:
    begin(log, "a/b")
    log.apply(AbortSpan, "a")
    assert refusal(log.begin("imp_1", span="a/b")) == "span_over"


def test_a_member_that_waits_for_its_turn_is_a_member(log: TableLog) -> None:
    log.begin("imp_1", "turns")
    log.begin("imp_2", "turns", span="night")
    assert end(log, "night").result.state == ENDING
    log.settle("imp_1")
    assert (log.span("night").state, log.imported("imp_2").span) == (ENDING, "night")
    log.settle("imp_2")
    assert log.span("night").state == ENDED
    assert log.events("span.ended")[0].data["imports"] == 1


def test_a_member_refused_when_its_turn_comes_aborts_the_span(log: TableLog) -> None:
    log.begin("imp_1", "turns")
    log.apply(DropTable, "turns")
    log.begin("imp_2", "turns", span="night")
    end(log, "night")
    log.settle("imp_1")
    assert refusal(log.final("imp_2")) == "no_table"
    assert (log.span("night").state, log.span("night").open_members) == (ABORTED, 0)
    assert aborted_for(log, "night") == "begin_import of acme/turns"


def test_rows_out_of_step_when_their_turn_comes_let_the_span_end() -> None:
    log = TableLog()
    log.define(concurrency="exclusive")
    begin(log, "night")
    log.begin("imp_1")
    log.append("imp_2", 5, 6, span="night")
    end(log, "night")
    assert log.span("night").state == ENDING
    log.settle("imp_1")
    assert refusal(log.final("imp_2")) == "out_of_step"
    assert (log.span("night").state, log.events("span.ended")[0].data["imports"]) == (ENDED, 0)


def test_who_asks_again_does_not_join_twice(log: TableLog) -> None:
    log.begin("imp_1", "turns")
    log.begin("imp_2", "turns", span="night", idempotency_key="k")
    log.begin("imp_3", "turns", span="night", idempotency_key="k")
    log.settle("imp_1")
    log.begin("imp_4", "turns", span="night", idempotency_key="k")
    end(log, "night")
    log.settle("imp_2")
    assert log.events("span.ended")[0].data["imports"] == 1
