"""The controller's rules: tenants, definitions, versions, and the life of one import."""

from typing import Any

import pytest

from millrace.control.state import State, Tenant
from millrace.control.step import step
from millrace.model.errors import Corrupt, Invalid
from millrace.model.imports import ADMITTED, CANCELLED, COMPLETED, FAILED, PROCESSING, STOPPING
from millrace.model.ops import Op
from millrace.model.ops.imports import CancelImport, ExpireImport, FailImport, StopImport
from millrace.model.ops.reading import decode_op
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.control import NOON, ONE_CHUNK, TableLog, declared, refusal

BROKEN = {"error": {"code": "invalid", "message": "bad", "remedy": "mend"}}


@pytest.fixture
def log() -> TableLog:
    """One concurrent table."""
    made = TableLog()
    made.define()
    return made


def test_a_tenant_keeps_the_partition_it_was_first_given() -> None:
    def define(state: State, agreement: dict[str, int], partition: int) -> Any:
        return step(state, DefineTenant("acme", agreement=agreement, id="op_1"), NOON, partition)

    first = define(State(), {"a": 1}, 3).state
    again = define(first, {"a": 2}, 0)
    assert again.state.tenant == Tenant("acme", 3, {"a": 2}, 2)
    assert again.answers[0].result.changed
    repeated = define(again.state, {"a": 2}, 0)
    assert repeated.effects == ()
    assert not repeated.answers[0].result.changed


def test_names_that_differ_only_in_case_are_refused() -> None:
    twins = State(tenant=Tenant("acme", 1, {}, 1), twin="Notes")
    for op in (DefineTable("acme", "notes", declaration=declared()), DefineTenant("acme", agreement={"a": 1})):
        [answer] = step(twins, op, NOON, 1).answers
        assert refusal(answer) == "clash"


def test_an_op_nobody_knows_is_refused(log: TableLog) -> None:
    assert refusal(log.read("dance", "notes", {})) == "invalid"


def test_a_definition_is_published_before_anyone_can_name_it(log: TableLog) -> None:
    answer = log.apply(DefineTable, "others", declaration=declared("others"))
    assert log.published() == [answer.result.definition]
    first, *later = (type(effect).__name__ for _, effect in log.last.effects)
    assert first == "StoreDefinition"
    assert "Send" in later


def test_a_definition_reaches_the_sinks_as_a_chunk_without_rows(log: TableLog) -> None:
    answer = log.apply(DefineTable, "others", declaration=declared("others"))
    [chunk] = log.sent()
    assert (chunk.kind, chunk.rows, chunk.definition) == ("prepare", 0, answer.result.definition)
    imp = log.imported(answer.result.import_id)
    assert (imp.kind, imp.state, imp.announced) == ("alter", PROCESSING, {"chunks": 1, "rows": 0, "bytes": 0})


def test_the_same_declaration_changes_nothing(log: TableLog) -> None:
    before = log.table()
    answer = log.apply(DefineTable, "notes", declaration=declared())
    assert not answer.result.changed
    assert (log.table(), log.last.effects) == (before, ())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"more": [{"name": "added", "type": "int"}]}, "incompatible"),
        (
            {"schema": {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "int"}]}},
            "needs_generation",
        ),
        ({"primary_key": []}, "needs_generation"),
    ],
)
def test_a_table_with_rows_keeps_its_shape(log: TableLog, change: dict[str, Any], code: str) -> None:
    before = log.table()
    assert refusal(log.define(**change)) == code
    assert log.table() == before


def test_a_column_that_may_be_null_can_be_added(log: TableLog) -> None:
    before = log.table().definition
    log.define(more=[{"name": "added", "type": ["null", "int"]}])
    assert (log.table().definition.revision, log.table().definition.previous) == (2, before.fingerprint)


def test_versions_follow_the_log_even_when_its_clock_stands_still_or_goes_back(log: TableLog) -> None:
    log.begin("imp_1")
    first = log.imported("imp_1")
    assert first.first_version == NOON + 1, "the table's definition has the version before"
    assert log.table().last_version == first.first_version + first.versions - 1
    expected = first.first_version + first.versions
    for number, at_us in enumerate((NOON, NOON - 1_000_000), 2):
        log.now_us = at_us
        log.begin(f"imp_{number}")
        assert log.imported(f"imp_{number}").first_version == expected
        expected += log.imported(f"imp_{number}").versions
    log.now_us = NOON + 10**13
    log.begin("imp_9")
    assert log.imported("imp_9").first_version == NOON + 10**13


def test_an_import_is_judged_by_the_definition_at_its_place_in_the_log(log: TableLog) -> None:
    log.begin("imp_1")
    old = log.table().definition.fingerprint
    log.define(more=[{"name": "added", "type": ["null", "int"]}])
    log.begin("imp_2")
    assert log.imported("imp_1").definition == old
    assert log.imported("imp_2").definition == log.table().definition.fingerprint != old


def test_an_import_needs_a_table_and_fits_its_limit(log: TableLog) -> None:
    assert refusal(log.begin("imp_1", "nowhere")) == "no_table"
    log.define("small", max_file_size_mb=1)
    assert refusal(log.begin("imp_2", "small", length=2 << 20)) == "too_large"
    assert refusal(log.begin("imp_3", "small", length=1 << 20)) is None


def test_keys_can_only_be_deleted_where_there_are_keys(log: TableLog) -> None:
    log.define("bag", primary_key=[])
    assert refusal(log.begin("imp_1", "bag", kind="delete")) == "no_key"
    assert refusal(log.begin("imp_2", "bag", kind="truncate")) == "invalid"
    log.begin("imp_3", kind="delete")
    assert log.imported("imp_3").kind == "delete"


def test_the_same_idempotency_key_is_the_same_import(log: TableLog) -> None:
    log.begin("imp_1", idempotency_key="k")
    again = log.begin("imp_2", idempotency_key="k")
    assert again.result.to_dict() == {"import": "imp_1", "repeated": True}
    assert (log.last.effects, "imp_2" in log.store.imports) == ((), False)
    log.define("others")
    assert refusal(log.begin("imp_3", "others", idempotency_key="k")) == "key_reused"


def test_an_import_ends_once(log: TableLog) -> None:
    log.begin("imp_1")
    assert log.imported("imp_1").state == ADMITTED
    log.end("imp_1")
    received = log.imported("imp_1")
    assert (received.state, received.announced) == (PROCESSING, ONE_CHUNK)
    assert refusal(log.end("imp_1")) is None
    assert log.imported("imp_1") == received
    assert refusal(log.end("imp_1", rows=11)) == "not_open"
    log.settle("imp_1")
    settled = log.imported("imp_1")
    assert (settled.state, log.table().open_imports) == (COMPLETED, 0)
    again = log.settle("imp_1", accepted=0)
    assert again.result.to_dict() == {"import": "imp_1", "state": COMPLETED}
    assert (log.imported("imp_1"), log.table().open_imports) == (settled, 0)
    assert len(log.events("import.completed")) == 1


@pytest.mark.parametrize(
    ("kind", "body", "final"),
    [
        (CancelImport, {}, CANCELLED),
        (ExpireImport, {"idle_seconds": 60}, FAILED),
        (FailImport, BROKEN, FAILED),
        (StopImport, BROKEN, FAILED),
    ],
)
def test_a_stopped_import_is_closed_first_and_ends_later(
    log: TableLog, kind: type[Op[Any]], body: dict[str, Any], final: str
) -> None:
    log.begin("imp_1")
    log.apply(kind, "imp_1", **body)
    assert (log.imported("imp_1").state, log.closed()) == (STOPPING, ["imp_1"])
    assert log.told[-1] == "import.stopping"
    log.apply(kind, "imp_1", **body)
    assert log.last.effects == (), "it is stopped once"
    assert refusal(log.end("imp_1")) == "not_open"
    log.settle("imp_1")
    assert log.imported("imp_1").state == final


def test_a_silent_upload_cannot_expire_once_it_has_been_received(log: TableLog) -> None:
    log.begin("imp_1")
    log.end("imp_1")
    assert refusal(log.apply(ExpireImport, "imp_1", idle_seconds=1)) == "not_open"
    assert refusal(log.apply(FailImport, "imp_1", **BROKEN)) == "not_open"
    assert refusal(log.apply(CancelImport, "imp_1")) is None


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"accepted": 0, "rejected": 10}, FAILED),
        ({"failed_chunks": 1}, FAILED),
        ({"read": 0, "accepted": 0, "rejected": 0}, COMPLETED),
    ],
)
def test_what_an_import_comes_to(log: TableLog, counts: dict[str, int], state: str) -> None:
    log.begin("imp_1")
    log.end("imp_1")
    log.settle("imp_1", **counts)
    assert log.imported("imp_1").state == state
    assert (log.imported("imp_1").error is None) == (state == COMPLETED)


def test_another_tenants_import_does_not_exist(log: TableLog) -> None:
    log.begin("imp_1")
    log.tenant = "other"
    assert refusal(log.apply(CancelImport, "imp_1")) == "no_import"
    assert refusal(log.settle("imp_1")) == "no_import"
    assert log.imported("imp_1").state == ADMITTED


@pytest.mark.parametrize(
    ("kind", "subject", "body"),
    [
        ("end_import", "imp_1", {}),
        ("settle_import", "imp_1", {"counts": "many"}),
        ("append", "notes", {"rows": "three"}),
        ("replay_errors", "notes", {"of": "imp_1", "rows": "!"}),
        ("define_table", "notes", {"declaration": [1]}),
        ("define_table", "notes", {}),
        ("dance", "notes", {}),
    ],
)
def test_an_op_that_cannot_be_understood_is_refused_and_changes_nothing(
    kind: str, subject: str, body: dict[str, Any]
) -> None:
    log = TableLog()
    log.define()
    log.begin("imp_1")
    before = log.imported("imp_1"), log.table()
    refused = log.read(kind, subject, body).refusal
    assert refused is not None
    assert isinstance(refused.to_error(), Invalid)
    assert (log.imported("imp_1"), log.table()) == before


@pytest.mark.parametrize(
    "record",
    [None, [], "define", {"id": "op_1"}, {"id": 1, "kind": "x", "tenant": "a", "subject": "b", "body": {}},
     {"id": "op_1", "kind": "append", "tenant": "a", "subject": "b", "body": {"span": 7}}],
)  # fmt: skip
def test_what_is_not_an_op_is_told_from_one(record: object) -> None:
    with pytest.raises(Corrupt):
        decode_op(record)
