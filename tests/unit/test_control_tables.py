"""Tables that are emptied, dropped, restored, purged and made anew; the floor under which nothing comes back."""

import pytest

from millrace.model.imports import COMPLETED, PROCESSING
from millrace.model.ops.imports import CancelImport
from millrace.model.ops.rows import ReplayErrors
from millrace.model.ops.tables import DefineTable, DropTable, PurgeTable, RestoreTable, TruncateTable, WaiveSink
from tests.support.control import NOON, TableLog, declared, refusal, rows


@pytest.fixture
def log() -> TableLog:
    made = TableLog()
    made.define()
    made.load("imp_1")
    return made


def drop(log: TableLog) -> int:
    log.apply(DropTable)
    dropped_us = log.table().dropped_us
    assert dropped_us is not None
    return dropped_us


def test_truncate_is_an_import_of_one_chunk_that_raises_the_floor(log: TableLog) -> None:
    log.begin("imp_2")
    before = log.table().last_version
    answer = log.apply(TruncateTable, "notes", op_id="op_t")
    floor = before + 1
    assert (answer.result.floor, log.table().floor, log.table().last_version) == (floor, floor, floor)
    [chunk] = log.sent()
    assert (chunk.kind, chunk.version, chunk.import_id) == ("truncate", floor, "imp_t")
    assert log.imported("imp_t").state == PROCESSING
    log.settle("imp_t", read=0, accepted=0, rejected=0)
    assert log.imported("imp_t").state == COMPLETED
    log.begin("imp_3")
    assert log.imported("imp_2").first_version < floor < log.imported("imp_3").first_version


@pytest.mark.parametrize("kind", [TruncateTable, DefineTable])
def test_a_change_in_force_cannot_be_cancelled(log: TableLog, kind: type[TruncateTable | DefineTable]) -> None:
    wider = {"declaration": declared(more=[{"name": "added", "type": ["null", "int"]}])}
    fields = wider if kind is DefineTable else {}
    import_id = log.apply(kind, "notes", **fields).result.import_id
    assert refusal(log.apply(CancelImport, import_id)) == "not_open"
    assert log.imported(import_id).state == PROCESSING


def test_a_change_of_a_definition_is_told_as_a_change_of_the_table() -> None:
    log = TableLog()
    import_id = log.define().result.import_id
    assert [each for each in log.told if each.startswith(("import.", "table."))] == [
        "table.created",
        "table.change_completed",
    ]
    assert [log.events(kind)[0].subject for kind in ("table.created", "table.change_completed")] == ["acme/notes"] * 2
    assert log.events("table.change_completed")[0].data["import"] == import_id
    log.define(more=[{"name": "added", "type": ["null", "int"]}], publish="atomic")
    (changed,) = log.events("table.changed")
    assert changed.data["revision"] == 2
    assert changed.data["changes"] == ["add column added nullable int", 'publish: "rolling" -> "atomic"']


def test_a_dropped_table_is_gone_for_everyone_who_asks(log: TableLog) -> None:
    drop(log)
    assert refusal(log.begin("imp_2")) == "no_table"
    assert refusal(log.apply(TruncateTable)) == "no_table"
    assert refusal(log.apply(DropTable)) == "no_table"
    assert "table.dropped" in log.told
    assert log.sent() == [], "its rows stay until it can no longer be restored"


def test_an_import_under_way_ends_although_its_table_was_dropped(log: TableLog) -> None:
    log.begin("imp_2")
    log.end("imp_2")
    drop(log)
    log.settle("imp_2")
    assert (log.imported("imp_2").state, log.table().open_imports) == (COMPLETED, 0)


def test_a_dropped_table_can_be_restored_as_it_was(log: TableLog) -> None:
    before = log.table()
    drop(log)
    assert refusal(log.apply(RestoreTable)) is None
    assert log.table() == before
    assert refusal(log.apply(RestoreTable)) == "not_dropped"


def test_a_table_made_again_never_sees_rows_of_its_past_life(log: TableLog) -> None:
    log.begin("imp_2")
    before = log.table()
    drop(log)
    log.define(primary_key=[])
    table = log.table()
    assert (table.definition.generation, table.definition.revision) == (2, 2)
    assert table.definition.floor == table.floor == before.last_version + 1
    assert table.definition.previous is None
    assert log.imported("imp_2").first_version < table.floor
    assert refusal(log.apply(RestoreTable)) == "not_dropped"
    log.begin("imp_3")
    assert log.imported("imp_3").first_version > table.floor


def test_the_same_declaration_makes_a_dropped_table_anew(log: TableLog) -> None:
    drop(log)
    assert log.define().result.changed
    assert log.table().definition.generation == 2


def test_what_needs_a_new_generation_begins_one_on_request(log: TableLog) -> None:
    assert refusal(log.define(primary_key=[])) == "needs_generation"
    log.define(primary_key=[], new_generation=True)
    assert log.table().definition.generation == 2
    log.define(primary_key=[], more=[{"name": "added", "type": ["null", "int"]}])
    later = log.table().definition
    assert (later.generation, later.revision, later.floor) == (2, 3, log.table().floor)


def test_compatibility_looks_at_the_generation_only(log: TableLog) -> None:
    log.define(more=[{"name": "a", "type": ["null", "int"]}])
    log.define(new_generation=True, compatibility="full_transitive")
    assert (
        refusal(log.define(compatibility="full_transitive", more=[{"name": "a", "type": ["null", "string"]}])) is None
    )
    assert [one.generation for one in log.store.revisions["acme", "notes"]] == [1, 1, 2, 2]


def test_a_purge_empties_what_stayed_dropped(log: TableLog) -> None:
    dropped_us = drop(log)
    answer = log.apply(PurgeTable, "notes", dropped_us=dropped_us, op_id="op_p")
    assert answer.result.purged
    assert [chunk.kind for chunk in log.sent()] == ["truncate"]
    assert log.table().floor == log.table().last_version > NOON
    assert refusal(log.apply(RestoreTable)) == "not_dropped"
    assert not log.apply(PurgeTable, "notes", dropped_us=dropped_us).result.purged
    log.settle("imp_p", read=0, accepted=0, rejected=0)
    log.define()
    assert log.table().definition.floor > log.imported("imp_p").first_version


@pytest.mark.parametrize("since", ["restored", "dropped again"])
def test_a_purge_leaves_alone_what_was_restored_since(log: TableLog, since: str) -> None:
    dropped_us = drop(log)
    log.apply(RestoreTable)
    if since == "dropped again":
        log.now_us += 1_000_000
        drop(log)
    before = log.table()
    assert not log.apply(PurgeTable, "notes", dropped_us=dropped_us).result.purged
    assert (log.table(), log.last.effects) == (before, ())


def test_the_floor_never_sinks(log: TableLog) -> None:
    floors = [log.table().floor]
    log.apply(TruncateTable)
    floors.append(log.table().floor)
    log.now_us -= 60_000_000
    log.apply(TruncateTable)
    floors.append(log.table().floor)
    drop(log)
    log.define()
    floors.append(log.table().floor)
    assert floors == sorted(set(floors))


def test_a_replay_below_the_floor_is_refused(log: TableLog) -> None:
    first_version = log.imported("imp_1").first_version
    body = {"of": "imp_1", "rows": rows(3), "rows_count": 1, "chunks": 1, "first_version": first_version}
    log.apply(TruncateTable)
    assert refusal(log.apply(ReplayErrors, "notes", **body, op_id="imp_2")) == "below_floor"
    assert log.store.claims == {}


def test_a_sink_that_is_given_up_is_no_longer_waited_for() -> None:
    log = TableLog()
    log.define(sinks=["delta", "mirror"])
    log.define("others", sinks=["delta", "mirror"])
    log.load("imp_1")
    log.begin("imp_2")
    log.begin("imp_3", "others")
    assert log.apply(WaiveSink, "notes", sink="mirror").result.waived == ("imp_2",)
    assert (log.imported("imp_2").sinks, log.imported("imp_3").sinks) == (("delta",), ("delta", "mirror"))
    assert log.imported("imp_1").sinks == ("delta", "mirror"), "what is over stays as it was"
    log.settle("imp_2")
    assert log.events("import.completed")[-1].data["waived"] == ["mirror"]
    assert refusal(log.apply(WaiveSink, "notes", sink="nowhere")) == "no_sink"
