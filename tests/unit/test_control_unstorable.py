"""An op that the store cannot take is refused, or passed over; the ops before and behind it are applied."""

from pathlib import Path
from typing import Any

import pytest

from millrace.control import controller
from millrace.model.ops import Op
from millrace.model.ops.spans import BeginSpan
from millrace.model.ops.tables import DefineTable, TruncateTable
from millrace.model.ops.tenants import DefineTenant
from millrace.wire.client import Record
from millrace.wire.envelope import pack
from millrace.wire.topics import TABLE_OPS
from tests.support.control import declared
from tests.support.golden_log import replay

TOO_LARGE = 2**63
OPS = [
    DefineTenant("acme", id="op_1", agreement={}),
    BeginSpan("acme", "night", id="op_2", lease_seconds=60),
    BeginSpan("acme", "endless", id="op_3", lease_seconds=TOO_LARGE),
    BeginSpan("acme", "day", id="op_4", lease_seconds=60),
]


def applied(ops: list[Op[Any]], root: Path) -> dict[str, Any]:
    records = [
        Record(TABLE_OPS, 0, offset, 1_700_000_000_000 + offset, b"", pack(op.to_dict()))
        for offset, op in enumerate(ops)
    ]
    return replay(records, root)


def codes(outcome: dict[str, Any]) -> dict[str, str | None]:
    return {op_id: refusal and refusal["code"] for op_id, _, refusal in outcome["answers"]}


def test_an_op_that_cannot_be_stored_is_refused_and_the_others_are_applied(tmp_path: Path) -> None:
    outcome = applied(OPS, tmp_path)
    assert codes(outcome) == {"op_1": None, "op_2": None, "op_3": "malformed_op", "op_4": None}
    assert [span["name"] for span in outcome["store"]["spans"]] == ["day", "night"]
    assert [row["next_offset"] for row in outcome["store"]["positions"]] == [4]
    refused = next(row for row in outcome["store"]["requests"] if row["id"] == "op_3")
    assert (refused["applied"], refused["refusal"]["code"]) == (True, "malformed_op")


def test_an_op_that_breaks_a_constraint_of_the_store_stops_nobody(tmp_path: Path) -> None:
    """Two ops wait for their turn under one id, and a table is declared without a name.

    An exclusive table is busy with the import that its declaration begins."""
    tables = [
        DefineTable("acme", name, id=f"op_{name}", declaration=declared(name, concurrency="exclusive"))
        for name in ("notes", "other")
    ]
    again = [TruncateTable("acme", "notes", id="op_4"), TruncateTable("acme", "other", id="op_4")]
    nameless = DefineTable("acme", "third", id="op_5", declaration={**declared("third"), "name": None})
    outcome = applied([OPS[0], *tables, *again, nameless, BeginSpan("acme", "day", id="op_6")], tmp_path)
    assert [(row["table_name"], row["op_id"]) for row in outcome["store"]["waiting"]] == [("notes", "op_4")]
    assert codes(outcome) == dict.fromkeys(("op_1", "op_notes", "op_other", "op_6")) | dict.fromkeys(
        ("op_4", "op_5"), "malformed_op"
    )
    assert [row["next_offset"] for row in outcome["store"]["positions"]] == [7]


def test_an_op_whose_refusal_cannot_be_stored_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL, for example, takes no text with a NUL, whatever column it is for."""
    request = controller._request

    def refuse_nul(op: Op[Any], *more: Any) -> dict[str, Any]:
        if "\0" in op.subject:
            raise ValueError("A string literal cannot contain NUL characters.")
        return request(op, *more)

    monkeypatch.setattr(controller, "_request", refuse_nul)
    outcome = applied([*OPS[:2], BeginSpan("acme", "\0", id="op_3"), OPS[3]], tmp_path)
    assert codes(outcome) == {"op_1": None, "op_2": None, "op_4": None}
    assert [row["next_offset"] for row in outcome["store"]["positions"]] == [4]


def test_a_store_that_is_away_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_away(*_: object) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(controller, "advance", is_away)
    with pytest.raises(OSError, match="the store is away"):
        applied(OPS, tmp_path)
