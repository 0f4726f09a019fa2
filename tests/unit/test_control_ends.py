"""Budgets of rejected rows, and imports that show all at once."""

import pytest

from millrace.model.budget import Budget
from millrace.model.imports import CANCELLED, COMPLETED, FAILED, PROCESSING, PUBLISHING, STOPPING
from millrace.model.ops.imports import CancelImport, PublishImport, StopImport
from tests.support.control import TableLog, refusal


@pytest.fixture
def log() -> TableLog:
    """A table whose imports show all at once, with one that has been received."""
    made = TableLog()
    made.define(publish="atomic")
    made.begin("imp_1")
    made.end("imp_1", chunks=3)
    return made


def publish(log: TableLog, **counts: int) -> None:
    log.settle("imp_1", PublishImport, **counts)


def test_one_more_chunk_shows_what_is_held(log: TableLog) -> None:
    publish(log)
    imp = log.imported("imp_1")
    assert (imp.state, imp.announced and imp.announced["chunks"]) == (PUBLISHING, 4)
    [chunk] = log.sent()
    assert (chunk.kind, chunk.number, chunk.version) == ("publish", 3, imp.first_version + 3)
    publish(log)
    assert log.sent() == [], "it is shown once"
    log.settle("imp_1")
    assert log.imported("imp_1").state == COMPLETED


def test_an_end_told_again_is_the_same_end_also_behind_its_publication(log: TableLog) -> None:
    assert log.end("imp_1", chunks=3).refusal is None
    publish(log)
    assert log.end("imp_1", chunks=3).refusal is None
    assert refusal(log.end("imp_1", chunks=4)) == "not_open", "the chunk that shows it is not the upload's"


def test_behind_its_publication_it_cannot_be_cancelled(log: TableLog) -> None:
    publish(log)
    assert refusal(log.apply(CancelImport, "imp_1")) == "not_open"
    assert log.imported("imp_1").state == PUBLISHING


def test_what_was_cancelled_before_is_never_shown(log: TableLog) -> None:
    log.apply(CancelImport, "imp_1")
    publish(log)
    assert (log.imported("imp_1").state, log.sent()) == (STOPPING, [])
    log.settle("imp_1")
    assert log.imported("imp_1").state == CANCELLED


def test_what_fails_at_the_end_is_never_shown(log: TableLog) -> None:
    publish(log, accepted=0, rejected=10)
    assert (log.imported("imp_1").state, log.sent()) == (FAILED, [])
    assert log.table().open_imports == 0


def test_what_fails_instead_of_being_shown_lets_the_next_in() -> None:
    log = TableLog()
    log.define(publish="atomic", concurrency="exclusive")
    log.begin("imp_1")
    log.end("imp_1")
    log.begin("imp_2")
    publish(log, accepted=0, rejected=10)
    assert not log.imported("imp_2").is_over


@pytest.mark.parametrize(
    ("budget", "counts", "state"),
    [
        (Budget(rows=0), {"rejected": 1, "accepted": 9}, FAILED),
        (Budget(rows=1), {"rejected": 1, "accepted": 9}, COMPLETED),
        (Budget(percent=10.0), {"rejected": 1, "accepted": 9}, COMPLETED),
        (Budget(percent=9.9), {"rejected": 1, "accepted": 9}, FAILED),
        (Budget(percent=9.9, min_rows=1000), {"rejected": 1, "accepted": 9}, FAILED),
        (Budget(rows=0, on_budget="stop"), {"rejected": 1, "accepted": 9}, FAILED),
        (Budget(rows=0, on_budget="hold"), {"rejected": 1, "accepted": 9}, COMPLETED),
    ],
)
def test_budgets_are_judged_once_more_over_all_rows(budget: Budget, counts: dict[str, int], state: str) -> None:
    log = TableLog()
    log.define()
    log.begin("imp_1")
    log.end("imp_1")
    log.settle("imp_1", budget=budget, **counts)
    imp = log.imported("imp_1")
    assert imp.state == state
    assert (imp.error or {}).get("code") == (None if state == COMPLETED else "too_many_rejected")


@pytest.mark.parametrize("received", [False, True])
def test_an_import_over_its_budget_stops_also_when_it_was_received(received: bool) -> None:
    log = TableLog()
    log.define(max_rejected=0)
    log.begin("imp_1")
    if received:
        log.end("imp_1")
    error = {"code": "too_many_rejected", "message": "1 of 2", "remedy": ""}
    log.apply(StopImport, "imp_1", error=error)
    assert (log.imported("imp_1").state, log.closed()) == (STOPPING, ["imp_1"])
    log.settle("imp_1", read=12, accepted=1, rejected=1, ignored=10)
    imp = log.imported("imp_1")
    assert (imp.state, imp.error) == (FAILED, error)
    assert log.events("import.failed")[0].data["rows"] == {"read": 12, "accepted": 1, "rejected": 1, "ignored": 10}


def test_whoever_cancelled_first_gave_the_reason() -> None:
    log = TableLog()
    log.define()
    log.begin("imp_1")
    log.apply(CancelImport, "imp_1")
    log.apply(StopImport, "imp_1", error={"code": "too_many_rejected", "message": "", "remedy": ""})
    log.settle("imp_1", accepted=0, rejected=10)
    assert log.imported("imp_1").state == CANCELLED


def test_an_append_to_such_a_table_shows_as_it_comes(log: TableLog) -> None:
    log.append("imp_2", 1, 1)
    assert (log.imported("imp_2").state, log.imported("imp_2").publish) == (PROCESSING, "rolling")
