"""Rules of quality in the log: what the agreement adds to tables, what may only be tightened, imports that are held."""

from dataclasses import replace
from typing import Any

import pytest

from millrace.model.imports import CANCELLED, COMPLETED, FAILED, HELD, PROCESSING, PUBLISHING, STOPPING
from millrace.model.ops import Applied
from millrace.model.ops.imports import CancelImport, HoldImport, PublishImport, ReleaseImport, SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.control import COUNTS, TableLog, declared, refusal

IDS = {"name": "ids", "column": "id", "min": 0, "max": 100, "action": "flag"}
REPORT = {"rows": 9, "bytes": 1, "rules": [{"name": "ids", "verdict": "broken", "samples": [1]}], "held": ["ids"]}


def agree(log: TableLog, *rules: dict[str, Any]) -> Applied:
    return log.apply(DefineTenant, "acme", agreement={"client": "acme", "rules": [*rules]})


def in_force(log: TableLog) -> list[str]:
    return [rule.name for rule in log.table().definition.rules]


@pytest.fixture
def log() -> TableLog:
    return TableLog()


def test_a_table_takes_over_the_rules_it_can_keep(log: TableLog) -> None:
    agree(log, IDS, {"name": "other", "column": "nowhere", "required": True})
    log.define()
    assert in_force(log) == ["ids"]
    assert log.define().result.changed is False


def test_a_changed_agreement_makes_a_new_revision_of_its_tables_and_changes_nothing_else(log: TableLog) -> None:
    log.define()
    assert agree(log, IDS).result.rules_changed
    assert in_force(log) == [], "imports are judged by what was published before they began"
    refreshed = log.apply(DefineTable, "notes", refresh=True).result
    assert (refreshed.revision, refreshed.changed, in_force(log)) == (2, True, ["ids"])
    assert log.apply(DefineTable, "notes", refresh=True).result.changed is False
    assert not agree(log, IDS).result.rules_changed
    agree(log)
    log.apply(DefineTable, "notes", refresh=True)
    assert in_force(log) == []


@pytest.mark.parametrize(
    ("own", "is_tighter"),
    [
        ({**IDS, "max": 50}, True),
        ({**IDS, "action": "reject"}, True),
        ({**IDS, "max": 101}, False),
        ({"name": "ids", "column": "id", "min": 0, "action": "flag"}, False),
        ({**IDS, "action": "count"}, False),
        ({"name": "ids", "column": "id", "in": [1], "action": "flag"}, False),
        ({**IDS, "name": "mine", "max": 1000}, True),
    ],
)
def test_a_table_may_only_tighten(log: TableLog, own: dict[str, Any], is_tighter: bool) -> None:
    agree(log, IDS)
    answer = log.apply(DefineTable, "notes", declaration=declared(rules=[own]))
    assert refusal(answer) == (None if is_tighter else "looser_rule")


def test_an_agreement_tightened_later_is_in_force_beside_the_tables_own(log: TableLog) -> None:
    agree(log, IDS)
    log.define(rules=[{**IDS, "max": 50}])
    agree(log, {**IDS, "max": 10})
    log.apply(DefineTable, "notes", refresh=True)
    assert in_force(log) == ["agreed-ids", "ids"]


def held(log: TableLog, **table: Any) -> None:
    log.define(**table)
    log.begin("imp_1")
    log.end("imp_1")
    body = {"counts": COUNTS, "durable": {"delta": 1}, "quality": REPORT}
    log.apply(HoldImport, "imp_1", **body)


def test_a_held_import_waits_until_it_is_released(log: TableLog) -> None:
    held(log)
    imp = log.imported("imp_1")
    assert (imp.state, imp.error and imp.error["code"]) == (HELD, "held")
    assert log.events("import.held")[0].data["rules"] == ["ids"]
    assert "samples" not in log.events("import.quality")[0].data["rules"][0]
    answer = log.apply(ReleaseImport, "imp_1", by="ann")
    assert answer.result.to_dict() == {"import": "imp_1", "released": True}
    assert log.imported("imp_1").state == PROCESSING
    log.settle("imp_1")
    imp = log.imported("imp_1")
    assert (imp.state, imp.error, imp.options["quality"], imp.options["released"]["by"]) == (
        COMPLETED,
        None,
        REPORT,
        "ann",
    )
    assert refusal(log.apply(ReleaseImport, "imp_1")) is None


def test_a_hold_that_was_asked_for_twice_does_not_hold_a_released_import_again(log: TableLog) -> None:
    held(log)
    log.apply(ReleaseImport, "imp_1", by="ann")
    log.apply(HoldImport, "imp_1", counts=COUNTS, durable={"delta": 1}, quality=REPORT)
    assert log.imported("imp_1").state == PROCESSING


def test_a_held_import_can_be_cancelled_and_a_held_atomic_one_published(log: TableLog) -> None:
    held(log)
    log.apply(CancelImport, "imp_1")
    assert log.imported("imp_1").state == STOPPING
    log.settle("imp_1")
    assert log.imported("imp_1").state == CANCELLED
    other = TableLog()
    held(other, publish="atomic")
    assert other.sent() == [], "nobody sees its rows"
    other.apply(ReleaseImport, "imp_1")
    other.settle("imp_1", PublishImport)
    assert other.imported("imp_1").state == PUBLISHING


def test_an_import_that_fails_anyway_is_not_held(log: TableLog) -> None:
    log.define()
    log.begin("imp_1")
    log.end("imp_1")
    counts = replace(COUNTS, accepted=0, rejected=10)
    log.apply(HoldImport, "imp_1", counts=counts, durable={}, quality=REPORT)
    assert log.imported("imp_1").state == FAILED


def test_only_held_imports_are_released(log: TableLog) -> None:
    log.define()
    log.begin("imp_1")
    assert refusal(log.apply(ReleaseImport, "imp_1")) == "not_held"


def test_a_held_import_keeps_its_turn_on_an_exclusive_table(log: TableLog) -> None:
    held(log, concurrency="exclusive")
    assert log.begin("imp_2").is_waiting
    log.apply(ReleaseImport, "imp_1")
    log.settle("imp_1")
    assert "imp_2" in log.store.imports


def test_streamed_rows_are_reported_only_where_a_rule_is_broken(log: TableLog) -> None:
    log.define()
    for number, verdict in enumerate(("kept", "broken"), 1):
        log.append(f"imp_{number}", number, number)
        told = {**REPORT, "held": [], "rules": [{"name": "ids", "verdict": verdict}]}
        log.apply(SettleImport, f"imp_{number}", counts=COUNTS, durable={}, quality=told)
    assert [event.subject for event in log.events("import.quality")] == ["imp_2"]
