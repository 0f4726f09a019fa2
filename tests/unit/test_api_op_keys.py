"""The server's keys at its start: a log whose last ops were signed by a key that is gone stops it, with a remedy."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.api import op_keys
from millrace.exchange.home import Home
from millrace.exchange.op_keys import OpKeyFiles
from millrace.model.errors import Corrupt
from millrace.model.ops.tenants import DefineTenant
from millrace.wire.client import Record
from millrace.wire.signing import OpKey, OpTrust
from tests.unit.test_wire_signing import record, tenants

TOPICS: Any = SimpleNamespace(cluster_id=lambda: "here")
ONE, TWO = OpKey.new(1, "here", {0: 0}), OpKey.new(2, "here", {0: 2})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Two ops of the first key, and three of the second."""
    ops = [DefineTenant(f"t{number}", id=f"op_{number}", agreement={"client": f"t{number}"}) for number in range(5)]
    found = [record(at, op, ONE if at < 2 else TWO) for at, op in enumerate(ops)]

    def last_records(_cluster: object, starts: dict[int, int], _ends: object) -> Iterator[Record]:
        return (one for one in found if one.offset >= starts[0])

    monkeypatch.setattr(op_keys, "end_offsets", lambda *_: {0: (0, len(found))})
    monkeypatch.setattr(op_keys, "last_records", last_records)
    return found


@pytest.fixture
def files(tmp_path: Path) -> OpKeyFiles:
    files = OpKeyFiles(Home(tmp_path / "home"))
    files.add(ONE)
    return files


def opened(files: OpKeyFiles) -> OpTrust:
    cluster: Any = None
    return op_keys.open_op_keys(files, cluster, TOPICS)


def test_a_newest_key_that_is_gone_stops_the_server(files: OpKeyFiles, log: list[Record]) -> None:
    with pytest.raises(Corrupt, match="key 0002 signed") as told:
        opened(files)
    assert told.value.code == "op_key_lost"
    assert files.folder in told.value.remedy
    assert len(files.read()) == 1
    files.add(TWO)
    assert opened(files).keys == [ONE, TWO]


def test_a_log_that_the_operator_accepts_keeps_its_ops(files: OpKeyFiles, log: list[Record], tmp_path: Path) -> None:
    (Path(files.folder) / "accept-log").touch()
    trust = opened(files)
    assert [key.number for key in trust.keys] == [1, 2]
    # The key that is lost signs nothing more.
    late = record(5, DefineTenant("late", id="op_5", agreement={}), TWO)
    (tmp_path / "store").mkdir()
    assert sorted(tenants([*log, late], tmp_path / "store", trust)) == ["t0", "t1", "t2", "t3", "t4"]
    assert opened(files).keys == trust.keys, "it is accepted once"


def test_records_that_nobody_signed_hide_no_lost_key(files: OpKeyFiles, log: list[Record]) -> None:
    log.append(record(5, DefineTenant("strange", id="op_5", agreement={}), None))
    with pytest.raises(Corrupt, match="key 0002 signed"):
        opened(files)
