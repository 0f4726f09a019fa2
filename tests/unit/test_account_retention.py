"""Whoever falls so far behind that the broker may delete what it has not read is heard before."""

from typing import Any

import pytest

from millrace.account import accountant as module
from millrace.account.accountant import Accountant
from millrace.model.facts import Checkpointed
from millrace.wire.topics import RAW_INPUT


@pytest.mark.parametrize(
    ("first", "half_way", "alarm"),
    [(0, 0, "ok"), (0, 5, "ok"), (0, 6, "more than half"), (6, 6, "are gone"), (5, 5, "ok")],
)
def test_the_alarm(first: int, half_way: int, alarm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Accountant.__new__(Accountant)
    one._cluster = None  # type: ignore[assignment]
    one._checkpoints = {"validate-bulk": Checkpointed("validate-bulk", {RAW_INPUT: {"0": 5}}, {})}
    one.retention = "ok"

    def offsets(*_: Any) -> dict[int, int]:
        return {0: half_way}

    monkeypatch.setattr(module, "offsets_at", offsets)
    one._watch_retention({RAW_INPUT: {0: (first, 10)}})
    assert alarm in one.retention
