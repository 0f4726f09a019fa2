"""The gateway with a log that keeps what it is told: stamps, lanes, limits, resuming."""

from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.declare.table import parse_table
from millrace.formats.cut import UploadOptions, open_cutter
from millrace.model.chunk import ChunkHeader
from millrace.model.errors import Clash, TooLarge
from millrace.model.imports import ADMITTED, Import
from millrace.model.table import define
from millrace.upload.gateway import Resume, Upload
from millrace.wire.client import Appended
from millrace.wire.envelope import unpack_rows, unpack_stamp
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.examples import examples

NOTES = {
    "schema": {
        "type": "record",
        "name": "notes",
        "fields": [{"name": "id", "type": "long"}, {"name": "t", "type": "string"}],
    }
}
DEFINITION = define("acme", parse_table(NOTES), 1)
PARTITIONS = QUICK_PARTITIONS + 4


class KeepingLog:
    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        self.records.append((partition, value))
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, len(self.records)))
        return done

    def chunks(self) -> list[tuple[int, ChunkHeader, bytes]]:
        found = []
        for partition, value in self.records:
            header, payload = unpack_stamp(value)
            assert header is not None
            found.append((partition, header, unpack_rows(header, payload)))
        return found


def upload(log: KeepingLog, *, versions: int = 1000, closed: bool = False, resume: Resume | None = None) -> Upload:
    imp = Import("imp_1", "acme", "notes", DEFINITION.fingerprint, ADMITTED, 5000, versions, ("delta",), 1)
    options = UploadOptions(max_plain_bytes=1 << 40)
    cutter = open_cutter(DEFINITION, options, resume=resume.cutter if resume else None, spool_dir=Path("unused"))
    return Upload(imp, cutter, log, PARTITIONS, lambda _: closed, resume)  # type: ignore[arg-type]


def finish(sending: Upload) -> Resume:
    while (sent := sending.finish_some()) is None:
        continue
    return sent


def text(rows: int) -> bytes:
    return b"id,t\n" + b"".join(b"%d,%s\n" % (n, b"x" * 90) for n in range(rows))


def test_a_small_import_takes_the_quick_lane_in_one_chunk() -> None:
    log = KeepingLog()
    sending = upload(log)
    sending.feed(text(10))
    assert log.records == [], "the lane is not known before the end"
    assert finish(sending).rows == 10
    ((partition, header, body),) = log.chunks()
    assert partition < QUICK_PARTITIONS
    assert (header.number, header.version, header.rows, header.first_row) == (0, 5000, 10, 1)
    assert body.endswith(b"x\n")


def test_a_large_import_is_spread_over_the_bulk_lane() -> None:
    log = KeepingLog()
    sending = upload(log)
    sending.feed(text(60_000))
    ended = finish(sending)
    chunks = log.chunks()
    assert ended.chunks == len(chunks) > 4
    assert {partition for partition, _, _ in chunks} == set(range(QUICK_PARTITIONS, PARTITIONS))
    assert [header.version for _, header, _ in chunks] == list(range(5000, 5000 + len(chunks)))
    rows = 1
    for _, header, _ in chunks:
        assert header.first_row == rows
        rows += header.rows
    assert rows == 60_001


def test_an_upload_cannot_outgrow_its_versions() -> None:
    sending = upload(KeepingLog(), versions=2)
    with pytest.raises(TooLarge):
        sending.feed(text(60_000))


def test_nothing_is_sent_for_an_import_that_was_stopped() -> None:
    log = KeepingLog()
    sending = upload(log, closed=True)
    with pytest.raises(Clash):
        sending.feed(text(60_000))
    assert log.records == []


@pytest.mark.parametrize("size", [1000, 1 << 16, 1 << 20])
def test_pieces_that_are_fed_together_make_the_same_chunks(size: int) -> None:
    whole, parts, body = KeepingLog(), KeepingLog(), text(50_000)
    straight, pieced = upload(whole), upload(parts)
    straight.feed(body)
    finish(straight)
    *first, last = [body[start : start + size] for start in range(0, len(body), size)]
    pieced.feed(*first)
    while pieced.finish_with(*[last] if pieced.received < len(body) else []) is None:
        continue
    assert parts.chunks() == whole.chunks()
    assert pieced.digest.mark == straight.digest.mark


@examples(15)
@given(cut=st.integers(0, 5_000_000))
def test_a_resumed_upload_sends_the_same_chunks(cut: int) -> None:
    whole, body = KeepingLog(), text(50_000)
    straight = upload(whole)
    straight.feed(body)
    finish(straight)
    broken = KeepingLog()
    first = upload(broken)
    first.feed(body[:cut])
    confirmed = first.confirmed
    offset = int((confirmed.cutter or {}).get("offset", 0))
    second = upload(broken, resume=confirmed if confirmed.cutter else None)
    assert second.received == offset
    second.feed(body[offset:])
    finish(second)
    sent = {header.number: (header, rows) for _, header, rows in broken.chunks()}
    assert sent == {header.number: (header, rows) for _, header, rows in whole.chunks()}
