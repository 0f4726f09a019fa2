"""Ops that the controller applies in one transaction meet as if each had had one of its own."""

from pathlib import Path
from typing import Any

import pytest

from millrace.control.entities import load, save
from millrace.control.step import step
from millrace.control.working_set import WorkingSet
from millrace.declare.table import parse_table
from millrace.model.ops import Applied, Op
from millrace.model.ops.base import ImportOp
from millrace.model.ops.imports import BeginImport, CancelImport, EndImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.store.engine import ControlStore
from tests.support.platform import record

DECLARATION = parse_table(record("orders", ("id", "long"), key=("id",))).to_dict()


def apply(store: ControlStore, *batches: list[Op]) -> list[Applied]:
    """Each list of ops in one transaction."""
    answers: list[Applied] = []
    at_us = 1_000_000
    for batch in batches:
        with store.write() as connection:
            working = WorkingSet(connection, [op.subject for op in batch if isinstance(op, ImportOp)])
            for op in batch:
                at_us += 1
                before = load(working, op)
                outcome = step(before, op, at_us, 0)
                save(working, before, outcome.state, at_us)
                answers += outcome.answers
            working.write()
    return answers


def script() -> list[Op]:
    def op(op_id: str, kind: type[Op[Any]], subject: str = "orders", **fields: Any) -> Op[Any]:
        return kind("acme", subject, id=op_id, **fields)

    return [
        DefineTenant("acme", id="op_1", agreement={"client": "acme"}),
        op("op_2", DefineTable, declaration=DECLARATION),
        op("imp_1", BeginImport, idempotency_key="night"),
        op("imp_2", BeginImport, idempotency_key="night"),
        op("imp_1", EndImport, "imp_1", chunks=1, rows=1, bytes=1, written=None),
        op("imp_3", BeginImport, idempotency_key="other"),
        op("imp_3", CancelImport, "imp_3"),
        op("imp_4", BeginImport, idempotency_key="other"),
    ]


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_batch_says_what_its_ops_would_say_one_by_one(tmp_path: Path, size: int) -> None:
    one_by_one = apply(ControlStore(f"sqlite:///{tmp_path / 'a.db'}"), *([op] for op in script()))
    cut = [script()[start : start + size] for start in range(0, len(script()), size)]
    assert apply(ControlStore(f"sqlite:///{tmp_path / 'b.db'}"), *cut) == one_by_one


def test_a_key_used_twice_in_a_batch_is_one_import(tmp_path: Path) -> None:
    answers = apply(ControlStore(f"sqlite:///{tmp_path / 'a.db'}"), script())
    assert [(one.op_id, one.result.import_id, one.result.repeated) for one in answers[2:4]] == [
        ("imp_1", "imp_1", False),
        ("imp_2", "imp_1", True),
    ]
