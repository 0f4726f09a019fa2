"""Rejected rows: replayed, amended or discarded, each by one."""

from typing import Any

import pytest

from millrace.control.claims import ClosedRows
from millrace.control.rules.errors import MOST_REPLAYS
from millrace.model.imports import COMPLETED, PROCESSING
from millrace.model.ops.imports import CancelImport
from millrace.model.ops.rows import DiscardErrors, ReplayErrors
from tests.support.control import TableLog, refusal, rows


@pytest.fixture
def log() -> TableLog:
    """An import that is over and had rejected rows."""
    made = TableLog()
    made.define()
    made.load("imp_1")
    return made


def replay(log: TableLog, op_id: str, *numbers: int, of: str = "imp_1", **more: Any) -> Any:
    kept = log.imported(of).first_version if of in log.store.imports else 1
    body = {"of": of, "rows": rows(*numbers), "rows_count": len(numbers), "chunks": 1, "first_version": kept, **more}
    return log.apply(ReplayErrors, "notes", **body, op_id=op_id)


def amend(log: TableLog, op_id: str, *numbers: int) -> Any:
    return log.begin(op_id, kind="amend", of="imp_1", rows=rows(*numbers))


def discard(log: TableLog, op_id: str, *numbers: int) -> Any:
    return log.apply(DiscardErrors, "notes", of="imp_1", rows=rows(*numbers), op_id=op_id)


def claimed(log: TableLog) -> list[int]:
    return list(ClosedRows.read(log.store.claims.get("imp_1")).rows)


def test_a_replay_keeps_its_version_so_it_can_beat_nothing_newer(log: TableLog) -> None:
    origin, last = log.imported("imp_1"), log.table().last_version
    replay(log, "imp_2", 3, 5)
    imp = log.imported("imp_2")
    assert (imp.first_version, imp.versions) == (origin.first_version, origin.versions)
    assert (imp.kind, imp.of, imp.state) == ("replay", "imp_1", PROCESSING)
    assert imp.announced == {"chunks": 1, "rows": 2, "bytes": 0}
    assert log.table().last_version == last
    log.settle("imp_2", read=2, accepted=2, rejected=0)
    assert log.events("import.completed")[-1].data["of"] == "imp_1"


def test_a_replay_is_judged_by_the_definition_of_now(log: TableLog) -> None:
    log.define(more=[{"name": "added", "type": ["null", "int"]}])
    replay(log, "imp_2", 3)
    assert log.imported("imp_2").definition == log.table().definition.fingerprint != log.imported("imp_1").definition


def test_a_replay_of_deletes_deletes_however_often_it_is_tried(log: TableLog) -> None:
    log.load("imp_2", kind="delete")
    replay(log, "imp_3", 3, of="imp_2")
    log.settle("imp_3", read=1, accepted=0, rejected=1)
    replay(log, "imp_4", 3, of="imp_3")
    assert [log.imported(name).deletes for name in ("imp_1", "imp_2", "imp_3", "imp_4")] == [False, True, True, True]


def test_how_the_rows_were_written_is_known_to_every_replay_of_them(log: TableLog) -> None:
    log.append("imp_2", 1, 5)
    log.settle("imp_2")
    replay(log, "imp_3", 3, of="imp_2")
    assert log.imported("imp_3").written == {"encoding": "jsonl"}


def test_amended_rows_get_a_new_version(log: TableLog) -> None:
    last = log.table().last_version
    amend(log, "imp_2", 3)
    assert (log.imported("imp_2").first_version, log.imported("imp_2").of) == (last + 1, "imp_1")


def test_discarded_rows_are_over_at_once(log: TableLog) -> None:
    assert discard(log, "imp_2", 3, 4).result.to_dict() == {"import": "imp_2", "state": COMPLETED}
    assert log.events("import.completed")[-1].data["discarded"] == 2
    assert log.table().open_imports == 0


@pytest.mark.parametrize("first", [replay, amend, discard])
@pytest.mark.parametrize("second", [replay, amend, discard])
def test_a_reject_is_claimed_once(log: TableLog, first: Any, second: Any) -> None:
    first(log, "imp_2", 3, 4)
    assert refusal(second(log, "imp_3", 4, 5)) == "claimed"
    assert (claimed(log), "imp_3" in log.store.imports) == ([3, 4], False)
    assert refusal(second(log, "imp_4", 5, 6)) is None
    assert claimed(log) == [3, 4, 5, 6]


@pytest.mark.parametrize("again", [replay, amend])
def test_what_did_not_complete_may_be_asked_for_again(log: TableLog, again: Any) -> None:
    discard(log, "imp_2", 9)
    again(log, "imp_3", 3, 4)
    log.apply(CancelImport, "imp_3")
    log.settle("imp_3", accepted=0, rejected=0, ignored=10)
    assert claimed(log) == [9]
    assert refusal(again(log, "imp_4", 3)) is None


def test_what_completed_stays_claimed(log: TableLog) -> None:
    replay(log, "imp_2", 3)
    log.settle("imp_2", read=1, accepted=1, rejected=0)
    assert claimed(log) == [3]


def test_without_a_key_a_row_could_be_there_twice_so_it_stays_claimed() -> None:
    log = TableLog()
    log.define(primary_key=[])
    log.load("imp_1")
    replay(log, "imp_2", 3)
    log.apply(CancelImport, "imp_2")
    log.settle("imp_2", accepted=1, rejected=0, ignored=9)
    assert claimed(log) == [3]


def test_only_rejects_of_an_import_that_is_over_and_of_this_table(log: TableLog) -> None:
    log.begin("imp_2")
    assert refusal(replay(log, "imp_3", 1, of="imp_2")) == "not_over"
    assert refusal(replay(log, "imp_4", 1, of="imp_none")) == "no_import"
    log.define("others")
    log.load("imp_5", "others")
    assert refusal(replay(log, "imp_6", 1, of="imp_5")) == "no_import"


def test_replays_of_replays_come_to_an_end(log: TableLog) -> None:
    origin = "imp_1"
    for number in range(MOST_REPLAYS):
        assert refusal(replay(log, f"imp_r{number}", 3, of=origin)) is None
        log.settle(f"imp_r{number}")
        origin = f"imp_r{number}"
    assert refusal(replay(log, "imp_last", 3, of=origin)) == "replayed_enough"


def test_a_replay_waits_its_turn_and_a_discard_does_not() -> None:
    log = TableLog()
    log.define(concurrency="exclusive")
    log.load("imp_1")
    log.begin("imp_2")
    assert replay(log, "imp_3", 3).result.to_dict() == {"waiting": True}
    assert claimed(log) == [], "it claims when its turn comes"
    assert refusal(discard(log, "imp_4", 3)) is None
    log.settle("imp_2")
    assert refusal(log.final("imp_3")) == "claimed"
    assert log.table().open_imports == 0


def test_a_replay_may_wait_for_the_import_it_is_about() -> None:
    log = TableLog()
    log.define(concurrency="exclusive")
    log.begin("imp_1")
    log.end("imp_1")
    replay(log, "imp_2", 3)
    log.settle("imp_1")
    assert log.imported("imp_2").of == "imp_1"
