"""Exclusive tables: one thing at a time, in the order of the log."""

from itertools import pairwise

import pytest

from millrace.control import step as step_module
from millrace.model.imports import ADMITTED
from millrace.model.ops.imports import ExpireImport
from millrace.model.ops.tables import DefineTable, DropTable, TruncateTable
from tests.support.control import TableLog, declared, refusal


@pytest.fixture
def log() -> TableLog:
    """One exclusive table with one import under way."""
    made = TableLog()
    made.define(concurrency="exclusive")
    made.begin("imp_1")
    return made


def under_way(log: TableLog) -> list[str]:
    return [imp.id for imp in log.store.imports.values() if not imp.is_over]


def line(log: TableLog) -> list[str]:
    return [op.id for op in log.store.queues[log.tenant, "notes"]]


def test_the_next_waits_until_the_one_before_has_settled(log: TableLog) -> None:
    assert log.begin("imp_2").result.to_dict() == {"waiting": True}
    log.end("imp_1")
    assert under_way(log) == ["imp_1"], "received is not settled"
    log.settle("imp_1")
    assert under_way(log) == ["imp_2"]
    assert log.final("imp_2").result.to_dict() == {"import": "imp_2", "repeated": False}
    assert log.imported("imp_2").first_version > log.imported("imp_1").first_version


def test_a_line_is_served_in_the_order_of_the_log(log: TableLog) -> None:
    log.begin("imp_2")
    log.apply(TruncateTable, "notes", op_id="op_t")
    log.begin("imp_3")
    assert line(log) == ["imp_2", "op_t", "imp_3"]
    log.settle("imp_1")
    assert (under_way(log), line(log)) == (["imp_2"], ["op_t", "imp_3"])
    log.settle("imp_2")
    assert (under_way(log), line(log)) == (["imp_t"], ["imp_3"])
    log.settle("imp_t")
    assert (under_way(log), line(log)) == (["imp_3"], [])


def test_whoever_does_not_want_to_wait_is_told_at_once(log: TableLog) -> None:
    assert refusal(log.begin("imp_2", wait=False)) == "under_way"
    assert refusal(log.apply(DefineTable, "notes", declaration=declared(), wait=False)) == "under_way"
    assert line(log) == []
    log.settle("imp_1")
    assert refusal(log.begin("imp_3", wait=False)) is None


def test_nobody_overtakes_a_line(log: TableLog) -> None:
    log.begin("imp_2")
    assert refusal(log.begin("imp_3", wait=False)) == "under_way"
    assert log.begin("imp_4").result.to_dict() == {"waiting": True}


def test_the_same_key_keeps_its_place_in_line(log: TableLog) -> None:
    log.begin("imp_2", idempotency_key="k")
    again = log.begin("imp_3", idempotency_key="k")
    assert again.result.to_dict() == {"waiting": True, "as": "imp_2"}
    assert line(log) == ["imp_2"]
    log.settle("imp_1")
    assert under_way(log) == ["imp_2"]
    assert log.begin("imp_4", idempotency_key="k").result.to_dict() == {"import": "imp_2", "repeated": True}


def test_who_asks_again_for_what_is_under_way_does_not_wait(log: TableLog) -> None:
    log.settle("imp_1")
    log.begin("imp_2", idempotency_key="k")
    assert log.begin("imp_3", idempotency_key="k").result.to_dict() == {"import": "imp_2", "repeated": True}


def test_what_can_no_longer_be_done_is_refused_when_its_turn_comes(log: TableLog) -> None:
    log.apply(DropTable, "notes", op_id="op_d")
    log.begin("imp_2")
    log.apply(DefineTable, "notes", declaration=declared(concurrency="exclusive"), op_id="op_again")
    log.begin("imp_3")
    log.settle("imp_1")
    assert refusal(log.final("imp_2")) == "no_table"
    assert refusal(log.final("op_again")) is None
    assert (under_way(log), line(log)) == (["imp_again"], ["imp_3"])
    assert log.table().definition.generation == 2


def test_a_table_that_becomes_concurrent_lets_everyone_in(log: TableLog) -> None:
    log.apply(DefineTable, "notes", declaration=declared(), op_id="op_c")
    log.begin("imp_2")
    wider = declared(more=[{"name": "added", "type": ["null", "int"]}])
    log.apply(DefineTable, "notes", declaration=wider, op_id="op_w")
    log.begin("imp_3")
    assert under_way(log) == ["imp_1"]
    log.settle("imp_1")
    assert sorted(under_way(log)) == ["imp_2", "imp_3", "imp_c", "imp_w"]
    assert log.imported("imp_2").definition != log.imported("imp_3").definition
    assert [one.revision for one in log.store.revisions["acme", "notes"]] == [1, 2, 3]
    blocks = [log.imported(name) for name in ("imp_c", "imp_2", "imp_w", "imp_3")]
    assert all(a.first_version + a.versions == b.first_version for a, b in pairwise(blocks))


def test_a_table_that_becomes_exclusive_waits_for_all_that_is_under_way() -> None:
    log = TableLog()
    log.define()
    log.begin("imp_1")
    log.begin("imp_2")
    log.define(concurrency="exclusive")
    log.begin("imp_3")
    log.settle("imp_1")
    assert under_way(log) == ["imp_2"]
    log.settle("imp_2")
    assert under_way(log) == ["imp_3"]


def test_ops_about_the_import_under_way_do_not_wait_behind_it(log: TableLog) -> None:
    log.begin("imp_2")
    log.apply(ExpireImport, "imp_1", idle_seconds=60)
    assert under_way(log) == ["imp_1"], "it has not settled"
    log.settle("imp_1")
    assert log.imported("imp_2").state == ADMITTED


def test_a_line_has_an_end(log: TableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MOST_WAITING", 1)
    log.begin("imp_2")
    assert refusal(log.begin("imp_3")) == "under_way"


def test_another_table_is_not_concerned(log: TableLog) -> None:
    log.define("others", concurrency="exclusive")
    assert refusal(log.begin("imp_2", "others")) is None
    assert log.imported("imp_2").state == ADMITTED
