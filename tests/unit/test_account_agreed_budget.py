"""An error budget of the agreement that changes while it holds imports: somebody decides about these, not the change."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import update

from millrace.account import accountant as accountant_module
from millrace.account.accountant import Accountant
from millrace.declare.table import parse_table
from millrace.exchange.partitions import OpPartitions
from millrace.model.imports import COMPLETED, HELD, PROCESSING, PUBLISHING, Counts
from millrace.model.ops.imports import BeginImport, EndImport, ReleaseImport
from millrace.model.ops.reading import decode_op
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.sinks import ERROR_STORE
from millrace.store import tables as t
from millrace.store.records import known_import
from millrace.wire.client import Appended, Cluster
from millrace.wire.envelope import unpack
from tests.support.platform import record
from tests.support.small_server import SmallPlatform

HOLDING = {"max_rejected": 4, "on_budget": "hold"}
COUNTS = Counts(chunks=1, read=20, accepted=15, rejected=5)


class AskedOps:
    """What the accountant appends to the log."""

    def __init__(self) -> None:
        self.ops: list[Any] = []

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        self.ops.append(decode_op(unpack(value)))
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class Ledger:
    """A platform with one import whose rows are durable, 5 of 20 rejected."""

    def __init__(self, root: Path) -> None:
        self.platform = SmallPlatform(root, ())
        self.start()

    def start(self) -> None:
        """An accountant that knows only what is stored."""
        self._asked = AskedOps()
        parts: Any = (self.platform.store, Cluster(""), self._asked, OpPartitions(self.platform.store, 1))
        with patch.object(accountant_module, "Topics"):
            self._accountant = Accountant(*parts, self.platform.exchange)

    def agree(self, **budget: Any) -> None:
        self.platform.apply(DefineTenant("acme", agreement={"client": "acme", **budget}))

    def declare(self, **policies: Any) -> None:
        document = {**record("notes", ("id", "long"), key=("id",)), **policies}
        self.platform.apply(DefineTable("acme", "notes", declaration=parse_table(document).to_dict()))

    def receive(self) -> None:
        self.platform.apply(BeginImport("acme", "notes", id="imp_1"))
        self.platform.apply(EndImport("acme", "imp_1", chunks=1, rows=20, bytes=99))
        durable = {"counts": asdict(COUNTS), "durable": {"delta": 1, ERROR_STORE: 1}}
        with self.platform.store.write() as connection:
            connection.execute(update(t.imports).where(t.imports.c.id == "imp_1").values(durable))

    def look(self) -> str:
        """The import's state after what the accountant asks for."""
        self._accountant.recheck({"imp_1"})
        asked, self._asked.ops = self._asked.ops, []
        for op in asked:
            self.platform.apply(op)
        return known_import(self.platform.store, "imp_1").state


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path)
    yield made
    made.platform.store.close()


@pytest.mark.parametrize("later", [{}, {"max_rejected": 4}, {"max_rejected": 100, "on_budget": "hold"}])
@pytest.mark.parametrize("publish", ["rolling", "atomic"])
def test_a_held_import_waits_for_a_decision_whatever_is_agreed_later(
    ledger: Ledger, later: dict[str, Any], publish: str
) -> None:
    ledger.agree(**HOLDING)
    ledger.declare(publish=publish)
    ledger.receive()
    assert ledger.look() == HELD
    ledger.agree(**later)
    assert ledger.look() == HELD
    ledger.start()
    assert ledger.look() == HELD, "also for an accountant that was started again"
    ledger.platform.apply(ReleaseImport("acme", "imp_1", by="ann"))
    assert known_import(ledger.platform.store, "imp_1").state == PROCESSING
    assert ledger.look() == (COMPLETED if publish == "rolling" else PUBLISHING), "released is released"
