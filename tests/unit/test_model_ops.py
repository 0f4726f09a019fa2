"""Ops: one class and one rule for each kind, one codec for all of them, refusals that keep their kind."""

from dataclasses import fields
from typing import Any

import orjson
import pytest

from millrace.api.op_log import raise_refusal
from millrace.control.rules import RULES, rule
from millrace.control.state import State, Step
from millrace.control.step import step
from millrace.model.errors import REFUSAL_KINDS, Clash, Corrupt, Exceeded, Invalid, Missing, Refused
from millrace.model.imports import HELD, STOPPING, TERMINAL
from millrace.model.ops import KINDS, Applied, read_op
from millrace.model.ops.base import TurnOp, Unreadable, op_kind
from millrace.model.ops.imports import BeginImport, ExpireImport
from millrace.model.ops.reading import decode_op
from millrace.model.ops.results import ImportStatus, Refusal, Waiting
from millrace.model.ops.rows import Append, OpenSender
from millrace.model.ops.spans import SpanStatus
from millrace.model.ops.tables import SinkWaived, TableStatus
from simulate.stored_results import decode_result, results_of
from tests.support.control import NOON, TableLog, refusal
from tests.support.golden_log import GOLDEN, read_log


def golden_ops() -> list[dict[str, Any]]:
    found = []
    for path in sorted(GOLDEN.glob("*.jsonl")):
        for record in read_log(path):
            try:
                found.append(orjson.loads(record.value))
            except orjson.JSONDecodeError:
                continue
    return [data for data in found if isinstance(data, dict) and isinstance(data.get("id"), str) and "body" in data]


def record(kind: str, subject: str = "notes", /, **body: Any) -> dict[str, Any]:
    return {"id": "op_1", "kind": kind, "tenant": "acme", "subject": subject, "body": body}


def test_every_kind_has_its_rule_and_nothing_else_has() -> None:
    assert set(RULES) == set(KINDS.values())
    assert all(kind == cls.KIND and results_of(kind) for kind, cls in KINDS.items())


def test_a_new_op_is_its_class_and_its_rule() -> None:
    """Reading, writing, waiting for its turn and being applied follow from the class."""
    before, rules_before = dict(KINDS), dict(RULES)

    @op_kind("paint_table")
    class PaintTable(TurnOp[TableStatus]):
        colour: str
        coats: int = 1

    @rule(PaintTable)
    def paint(state: State, op: PaintTable, at_us: int, partition: int) -> Step:
        return state, (), TableStatus(f"{op.table} in {op.colour}", dropped=False)

    try:
        log = TableLog()
        log.define(concurrency="exclusive")
        log.begin("imp_1")
        op = read_op(orjson.loads(orjson.dumps(PaintTable("acme", "notes", id="op_p", colour="blue").to_dict())))
        assert log.take(op).is_waiting
        log.end("imp_1")
        log.settle("imp_1")
        assert log.final("op_p").result == TableStatus("notes in blue", dropped=False)
        assert refusal(log.read("paint_table", "notes", {"colour": 7})) == "malformed_op"
    finally:
        for known, first in ((KINDS, before), (RULES, rules_before)):
            known.clear()
            known.update(first)  # type: ignore[arg-type]


def test_old_records_are_read_and_new_ones_say_the_same() -> None:
    """Left out is only what has the value that a reader takes where there is none."""
    absent = (None, False, True, {}, "", "load", {"rows": None, "percent": None, "min_rows": 1000})
    seen = set()
    for data in golden_ops():
        op = decode_op(data)
        again = orjson.loads(orjson.dumps(op.to_dict()))
        assert decode_op(again) == op
        left_out = {name: value for name, value in data["body"].items() if name not in again["body"]}
        assert all(value in absent for value in left_out.values()), left_out
        kept = {name: value for name, value in data["body"].items() if name in again["body"]}
        assert {**again, "body": {name: again["body"][name] for name in kept}} == {**data, "body": kept}
        seen.add(op.kind)
    assert seen == set(KINDS), "the golden logs hold every kind"


def test_names_in_the_log_stay_what_they_were() -> None:
    assert OpenSender("acme", "notes", sender="s", id="op_1").to_dict() == record("open_stream", stream="s")
    rows = {"rows": 1, "plain_bytes": 2, "checksum": 3, "payload": "cm93cw=="}
    append = Append("acme", "notes", **rows, senders={"s": (1, 1)}, id="op_1")
    assert append.to_dict() == record("append", **rows, streams={"s": (1, 1)})
    assert decode_op(record("append", **rows, streams={"s": [1, 1]})) == append
    begun = BeginImport("acme", "notes", import_kind="delete", id="op_1")
    assert begun.to_dict() == record("begin_import", kind="delete")


def test_unknown_fields_are_ignored() -> None:
    assert decode_op(record("drop_table", wait=False, colour="blue")).to_dict() == record("drop_table", wait=False)


@pytest.mark.parametrize(
    "data",
    [
        record("dance"),
        record("drop_table", wait="no"),
        record("drop_table", span=7),
        record("end_import", chunks=1, rows=True, bytes=1),
        record("end_import", chunks=1, rows=1),
        record("fail_import", error={"code": 1}),
        record("append", rows=1, plain_bytes=1, checksum=1, payload="", streams={"s": [1]}),
        record("append", rows=1, plain_bytes=1, checksum=1, payload="", streams=["s"]),
        record("settle_import", counts={"chunks": "many"}, durable={}),
        record("settle_import", counts=7, durable={}),
        record("hold_import", counts={}, durable={}),
    ],
)
def test_an_op_that_does_not_fit_its_class_is_corrupt_and_whoever_asked_is_told(data: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        decode_op(data)
    op = read_op(data)
    assert isinstance(op, Unreadable)
    assert (op.kind, op.subject, op.id) == (data["kind"], "notes", "op_1")
    [answer] = step(State(), op, NOON, 0).answers
    with pytest.raises(Invalid):
        raise_refusal(answer)


def test_a_member_that_cannot_be_read_aborts_its_span() -> None:
    log = TableLog()
    log.define()
    log.read("begin_span", "night", {})
    log.read("append", "notes", {"span": "night"})
    assert log.span("night").state == "aborted"


def test_seconds_may_be_written_with_or_without_a_fraction() -> None:
    assert [decode_op(record("expire_import", "i", idle_seconds=given)).idle_seconds for given in (60, 60.5)] == [
        60,
        60.5,
    ]
    assert ExpireImport("acme", "i").idle_seconds == 0


@pytest.mark.parametrize("kind", REFUSAL_KINDS)
def test_a_refusal_keeps_its_kind(kind: str) -> None:
    facts = {"quota": "rows"} if kind == Exceeded.kind else {}
    given = Refusal(kind, Exceeded.code if facts else "some_code", "What.", "Do.", facts)
    found = Refusal.from_dict(orjson.loads(orjson.dumps(given.to_dict())))
    assert found == given
    error = found.to_error()
    assert type(error) is REFUSAL_KINDS[kind]
    assert Refusal.of(error) == given


def test_an_answer_without_a_kind_gets_that_of_its_code() -> None:
    def kind_of(code: str) -> type[Refused]:
        return type(Refusal.from_dict({"code": code, "message": "", "remedy": ""}).to_error())

    assert (kind_of("missing"), kind_of("over_quota"), kind_of("no_table")) == (Missing, Exceeded, Refused)


def test_the_rules_refuse_by_kind() -> None:
    log = TableLog()
    log.define()
    with pytest.raises(Missing):
        raise_refusal(log.begin("imp_1", "nowhere"))
    log.begin("imp_1", idempotency_key="k")
    log.define("others")
    with pytest.raises(Clash) as raised:
        raise_refusal(log.begin("imp_2", "others", idempotency_key="k"))
    assert raised.value.code == "key_reused"


def test_an_import_is_over_in_a_final_state_only() -> None:
    states = (*TERMINAL, HELD, STOPPING, "processing")
    assert [ImportStatus("imp_1", state).over for state in states] == ["imp_1"] * 3 + [None] * 3
    assert [ImportStatus("imp_1", state).rests for state in states] == [True] * 4 + [False] * 2


def test_results_are_read_as_they_were_stored() -> None:
    for kind, result in (
        ("begin_import", Waiting("imp_1")),
        ("settle_import", ImportStatus("imp_1", "completed")),
        ("end_span", SpanStatus("night", "ended")),
        ("drop_table", TableStatus("notes", dropped=True)),
        ("waive_sink", SinkWaived("mirror", ("imp_1",), 7)),
    ):
        assert decode_result(kind, orjson.loads(orjson.dumps(result.to_dict()))) == result
    assert decode_result("drop_table", {}) == Applied("op_1").result
    with pytest.raises(Corrupt):
        decode_result("drop_table", {"table": "notes", "dropped": 1})


def test_classes_of_ops_are_frozen_and_their_own_fields_are_given_by_name() -> None:
    for cls in KINDS.values():
        assert cls.__dataclass_params__.frozen, cls  # type: ignore[attr-defined]
        positional = [one.name for one in fields(cls) if not one.kw_only]
        assert positional in (["tenant"], ["tenant", cls.SUBJECT]), cls
