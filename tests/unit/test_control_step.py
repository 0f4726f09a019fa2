"""The controller's rules, one op at a time."""

from dataclasses import replace
from typing import Any

import pytest

from millrace.control.step import Announce, Close, Publish, State, Tenant, step
from millrace.model import ops
from millrace.model.declaration import parse_table
from millrace.model.errors import Clash, Missing, Refused, TooLarge
from millrace.model.imports import ADMITTED, CANCELLED, COMPLETED, FAILED, PROCESSING, STOPPING
from millrace.model.ops import Op

NOON = 1_700_000_000_000_000
COUNTS = {"chunks": 2, "read": 10, "accepted": 9, "rejected": 1, "ignored": 0, "failed_chunks": 0}


def declared(**changes: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, *changes.pop("more", [])]
    document = {"schema": {"type": "record", "name": "notes", "fields": fields}, "primary_key": ["id"], **changes}
    return parse_table(document).to_dict()


def op(kind: str, subject: str, body: dict[str, Any] | None = None, op_id: str = "op_1") -> Op:
    return Op(op_id, kind, "acme", subject, body or {})


def with_table(**changes: Any) -> State:
    start = State(tenant=Tenant("acme", 1, {}, 1))
    return step(start, op(ops.DEFINE_TABLE, "notes", {"declaration": declared(**changes)}), NOON, 1)[0]


def with_import(state: State | None = None, at: int = NOON, **body: Any) -> State:
    return step(state or with_table(), op(ops.BEGIN_IMPORT, "notes", body, "imp_1"), at, 1)[0]


def test_a_tenant_keeps_the_partition_it_was_first_given() -> None:
    first = step(State(), op(ops.DEFINE_TENANT, "acme", {"agreement": {"a": 1}}), NOON, 3)[0]
    again, effects, answer = step(first, op(ops.DEFINE_TENANT, "acme", {"agreement": {"a": 2}}), NOON, 0)
    assert again.tenant == Tenant("acme", 3, {"a": 2}, 2)
    assert [type(effect) for effect in effects] == [Announce]
    assert step(again, op(ops.DEFINE_TENANT, "acme", {"agreement": {"a": 2}}), NOON, 0)[2]["changed"] is False
    assert answer["changed"]


def test_a_definition_is_published_before_anyone_can_name_it() -> None:
    start = State(tenant=Tenant("acme", 1, {}, 1))
    _, effects, answer = step(start, op(ops.DEFINE_TABLE, "notes", {"declaration": declared()}), NOON, 1)
    assert isinstance(effects[0], Publish)
    assert effects[0].definition.fingerprint == answer["definition"]


@pytest.mark.parametrize(
    "after",
    [
        declared(more=[{"name": "added", "type": "int"}]),
        declared(schema={"type": "record", "name": "notes", "fields": [{"name": "id", "type": "int"}]}),
        declared(primary_key=[]),
    ],
)
def test_a_table_with_rows_keeps_its_shape(after: dict[str, Any]) -> None:
    with pytest.raises(Clash):
        step(with_table(), op(ops.DEFINE_TABLE, "notes", {"declaration": after}), NOON, 1)


def test_a_column_that_may_be_null_can_be_added() -> None:
    after = declared(more=[{"name": "added", "type": ["null", "int"]}])
    table = step(with_table(), op(ops.DEFINE_TABLE, "notes", {"declaration": after}), NOON, 1)[0].table
    assert table is not None
    assert table.definition.revision == 2


def test_versions_follow_the_log_even_when_its_clock_stands_still_or_goes_back() -> None:
    state = with_import()
    first, table = state.imp, state.table
    assert first is not None
    assert table is not None
    assert first.first_version == NOON
    assert table.last_version == NOON + first.versions - 1
    for at in (NOON, NOON - 1_000_000):
        later = with_import(replace(state, imp=None), at).imp
        assert later is not None
        assert later.first_version == first.first_version + first.versions
    much_later = with_import(replace(state, imp=None), NOON + 10**13).imp
    assert much_later is not None
    assert much_later.first_version == NOON + 10**13


def test_an_import_needs_a_table_and_fits_its_limit() -> None:
    with pytest.raises(Missing):
        with_import(State(tenant=Tenant("acme", 1, {}, 1)))
    with pytest.raises(TooLarge):
        with_import(with_table(max_file_size_mb=1), length=2 << 20)


def test_the_same_idempotency_key_is_the_same_import() -> None:
    state = with_import(idempotency_key="k")
    again = replace(state, same_key=state.imp, imp=None)
    after, effects, answer = step(again, op(ops.BEGIN_IMPORT, "notes", {"idempotency_key": "k"}, "imp_2"), NOON, 1)
    assert after == again
    assert effects == ()
    assert answer == {"import": "imp_1", "repeated": True}
    elsewhere = replace(again, same_key=replace(state.imp, table="others"))
    with pytest.raises(Clash):
        step(elsewhere, op(ops.BEGIN_IMPORT, "notes", {"idempotency_key": "k"}, "imp_2"), NOON, 1)


def test_an_import_ends_once() -> None:
    announced = {"chunks": 2, "rows": 10, "bytes": 99}
    received = step(with_import(), op(ops.END_IMPORT, "imp_1", announced), NOON, 1)[0]
    assert received.imp is not None
    assert received.imp.state == PROCESSING
    assert step(received, op(ops.END_IMPORT, "imp_1", announced), NOON, 1)[0] == received
    with pytest.raises(Clash):
        step(received, op(ops.END_IMPORT, "imp_1", {**announced, "rows": 11}), NOON, 1)
    settle = op(ops.SETTLE_IMPORT, "imp_1", {"counts": COUNTS, "durable": {"delta": 2}})
    settled, effects, _ = step(received, settle, NOON, 1)
    assert settled.imp is not None
    assert settled.imp.state == COMPLETED
    assert [effect.type for effect in effects if isinstance(effect, Announce)] == ["import.completed"]
    assert step(settled, settle, NOON, 1) == (settled, (), {"import": "imp_1", "state": COMPLETED})


@pytest.mark.parametrize(
    ("kind", "body", "final"),
    [
        (ops.CANCEL_IMPORT, {}, CANCELLED),
        (ops.EXPIRE_IMPORT, {"idle_seconds": 60}, FAILED),
        (ops.FAIL_IMPORT, {"error": {"code": "invalid", "message": "bad", "remedy": "mend"}}, FAILED),
    ],
)
def test_a_stopped_import_is_closed_first_and_ends_later(kind: str, body: dict[str, Any], final: str) -> None:
    stopped, effects, _ = step(with_import(), op(kind, "imp_1", body), NOON, 1)
    assert stopped.imp is not None
    assert stopped.imp.state == STOPPING
    assert isinstance(effects[0], Close)
    settle = op(ops.SETTLE_IMPORT, "imp_1", {"counts": COUNTS, "durable": {}})
    ended = step(stopped, settle, NOON, 1)[0].imp
    assert ended is not None
    assert ended.state == final
    assert step(stopped, op(kind, "imp_1", body), NOON, 1)[1] == ()
    with pytest.raises(Refused):
        step(stopped, op(ops.END_IMPORT, "imp_1", {"chunks": 1, "rows": 1, "bytes": 1}), NOON, 1)


def test_a_silent_upload_cannot_expire_once_it_has_been_received() -> None:
    received = step(with_import(), op(ops.END_IMPORT, "imp_1", {"chunks": 1, "rows": 1, "bytes": 1}), NOON, 1)[0]
    with pytest.raises(Clash):
        step(received, op(ops.EXPIRE_IMPORT, "imp_1", {"idle_seconds": 1}), NOON, 1)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({**COUNTS, "accepted": 0, "rejected": 10}, FAILED),
        ({**COUNTS, "failed_chunks": 1}, FAILED),
        ({**COUNTS, "read": 0, "accepted": 0, "rejected": 0}, COMPLETED),
    ],
)
def test_what_an_import_comes_to(counts: dict[str, int], state: str) -> None:
    received = step(with_import(), op(ops.END_IMPORT, "imp_1", {"chunks": 2, "rows": 10, "bytes": 1}), NOON, 1)[0]
    ended = step(received, op(ops.SETTLE_IMPORT, "imp_1", {"counts": counts, "durable": {}}), NOON, 1)[0].imp
    assert ended is not None
    assert ended.state == state


def test_another_tenants_import_does_not_exist() -> None:
    foreign = with_import()
    assert foreign.imp is not None
    with pytest.raises(Missing):
        step(replace(foreign, imp=replace(foreign.imp, tenant="other")), op(ops.CANCEL_IMPORT, "imp_1"), NOON, 1)


def test_an_admitted_import_takes_chunks() -> None:
    imp = with_import().imp
    assert imp is not None
    assert imp.state == ADMITTED
    assert imp.accepts_chunks
