"""Nothing is trimmed that the slowest query may still need; whoever falls so far behind that the broker may delete what it
has not read is heard before."""

from pathlib import Path
from typing import Any

import pytest

from millrace.account import accountant as module
from millrace.account.accountant import Accountant
from millrace.exchange.mailboxes import open_exchange
from millrace.model.facts import Checkpointed
from millrace.wire.topics import RAW_INPUT, VALIDATED_INPUT


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


def told(query: str, end: int, start: int | None) -> Checkpointed:
    starts = {} if start is None else {VALIDATED_INPUT: {"0": start}}
    return Checkpointed(query, {VALIDATED_INPUT: {"0": end}}, starts)


@pytest.mark.parametrize(
    ("checkpoints", "trimmed"),
    [
        ([told("sink-kafka", 900, 800), told("sink-delta", 700, 600)], 600),
        ([told("sink-kafka", 900, 800), told("sink-delta", 10, None)], 0),
        ([told("sink-kafka", 900, 800)], None),
        ([told("sink-delta", 900, 800)], None),
    ],
)
def test_the_slowest_query_keeps_what_it_has_not_committed(
    checkpoints: list[Checkpointed], trimmed: int | None, tmp_path: Path
) -> None:
    one = Accountant.__new__(Accountant)
    one._exchange = open_exchange(tmp_path)
    (tmp_path / "run" / "sinks" / "kafka").mkdir(parents=True)
    one._checkpoints = {checkpoint.query: checkpoint for checkpoint in checkpoints}
    assert one._passed_by_all().get((VALIDATED_INPUT, 0)) == trimmed
