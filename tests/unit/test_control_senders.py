"""Rows of senders: an append is an import in one op; senders count their rows."""

import pytest

from millrace.control.state import Send
from millrace.model.imports import PROCESSING
from millrace.model.ops.rows import Append, OpenSender
from millrace.model.ops.tables import DropTable
from tests.support.control import NOON, TableLog, refusal


@pytest.fixture
def log() -> TableLog:
    made = TableLog()
    made.define()
    return made


def opened(log: TableLog, sender: str = "s") -> int:
    return int(log.apply(OpenSender, "notes", sender=sender).result.seq)


def test_an_append_is_admitted_received_and_sent_in_one_step(log: TableLog) -> None:
    answer = log.append("imp_1", 1, 3)
    assert answer.result.to_dict() == {"import": "imp_1", "version": NOON + 1}
    imp = log.imported("imp_1")
    assert (imp.state, imp.kind, imp.versions) == (PROCESSING, "append", 1)
    assert imp.announced == {"chunks": 1, "rows": 3, "bytes": 3}
    [chunk] = log.sent()
    assert (chunk.version, chunk.rows, chunk.checksum, chunk.kind) == (NOON + 1, 3, 7, "rows")
    assert [effect.payload for _, effect in log.last.effects if isinstance(effect, Send)] == [b"rows"]


def test_appends_get_one_version_each_in_order(log: TableLog) -> None:
    versions = [log.append(f"imp_{n}", n, n).result.version for n in range(1, 6)]
    assert versions == [NOON + n for n in range(1, 6)]


@pytest.mark.parametrize(("first", "last"), [(1, 2), (3, 4), (5, 6), (4, 3)])
def test_rows_out_of_step_are_refused_whole(log: TableLog, first: int, last: int) -> None:
    log.append("imp_1", 1, 3)
    version = log.table().last_version
    assert refusal(log.append("imp_2", first, last)) == "out_of_step"
    assert (opened(log), log.table().last_version) == (3, version)
    assert "imp_2" not in log.store.imports
    assert refusal(log.append("imp_3", 4, 9)) is None
    assert opened(log) == 9


def test_one_stream_out_of_step_spoils_the_batch_and_moves_no_other(log: TableLog) -> None:
    log.append("imp_1", 1, 3, "left")
    body = {"rows": 2, "plain_bytes": 2, "checksum": 1, "payload": "", "senders": {"right": (1, 1), "left": (9, 9)}}
    assert refusal(log.apply(Append, "notes", **body, op_id="imp_2")) == "out_of_step"
    assert (opened(log, "left"), opened(log, "right")) == (3, 0)


def test_a_stream_belongs_to_its_table(log: TableLog) -> None:
    log.define("others")
    log.append("imp_1", 1, 3)
    assert log.apply(OpenSender, "others", sender="s").result.seq == 0


def test_rows_without_a_stream_are_taken(log: TableLog) -> None:
    body = {"rows": 1, "plain_bytes": 1, "checksum": 1, "payload": ""}
    assert refusal(log.apply(Append, "notes", **body, op_id="imp_1")) is None


def test_a_stream_survives_a_new_generation(log: TableLog) -> None:
    log.append("imp_1", 1, 3)
    log.define(new_generation=True, primary_key=[])
    assert opened(log) == 3


def test_who_opens_a_stream_hears_of_every_append_before_also_of_those_in_line() -> None:
    log = TableLog()
    log.define(concurrency="exclusive")
    log.begin("imp_1")
    log.append("imp_2", 1, 3)
    asked = log.apply(OpenSender, "notes", sender="s", op_id="op_open")
    assert asked.result.to_dict() == {"waiting": True}
    assert opened(log, "other") == 0, "a sender that nothing in line moves on does not wait"
    log.settle("imp_1")
    assert log.imported("imp_2").state == PROCESSING
    assert log.final("op_open").result.to_dict() == {"waiting": True}, "the append is under way"
    log.settle("imp_2")
    assert log.final("op_open").result.seq == 3


def test_appends_in_line_keep_step_with_each_other() -> None:
    log = TableLog()
    log.define(concurrency="exclusive")
    log.begin("imp_1")
    log.append("imp_2", 1, 3)
    log.append("imp_3", 4, 5)
    log.append("imp_4", 4, 6)
    for name in ("imp_1", "imp_2", "imp_3"):
        log.settle(name)
    assert refusal(log.final("imp_3")) is None
    assert refusal(log.final("imp_4")) == "out_of_step"
    assert opened(log) == 5


def test_a_table_that_is_gone_takes_no_rows(log: TableLog) -> None:
    log.apply(DropTable)
    assert refusal(log.append("imp_1", 1, 1)) == "no_table"
    assert refusal(log.apply(OpenSender, "notes", sender="s")) == "no_table"
