"""Chunks of a tenant whose keys are out of reach are held, those of others are judged. The keys bring the held ones back."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import orjson
import pytest

from millrace.atomic import UNFINISHED
from millrace.declare.table import parse_table
from millrace.exchange.mailboxes import Exchange, open_exchange
from millrace.model.chunk import ChunkHeader, TextLayout
from millrace.model.errors import Unavailable
from millrace.model.table import Definition, define
from millrace.plane import held, judging
from millrace.plane.checkpoints import Stops
from millrace.plane.held import HeldChunkSender
from millrace.plane.isolate import UnjudgedChunk
from millrace.plane.judging import ChunkJudge, ReadChunk
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.validate.judge import JudgedChunk, judge
from millrace.wire.client import Appended as AppendedRecord
from millrace.wire.client import Appender
from millrace.wire.envelope import checksum, compress, pack_chunk, unpack_stamp
from millrace.wire.topics import RAW_INPUT

BODY = b"1\nx\n"
SCHEMA = {"type": "record", "name": "t", "fields": [{"name": "a", "type": "int"}]}


class Keeper(LocalKms):
    """A KMS that can be away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_away, self.asked = False, 0

    def unwrap(self, tenant: str, wrapped: bytes, context: str) -> bytes:
        self.asked += 1
        if self.is_away:
            raise Unavailable("The KMS does not answer.")
        return super().unwrap(tenant, wrapped, context)


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.exchange: Exchange = open_exchange(root)
        self.keeper = Keeper(root / "kms")
        self.definitions = {tenant: define(tenant, parse_table({"schema": SCHEMA}), 1) for tenant in ("acme", "other")}
        for definition in self.definitions.values():
            self.exchange.definitions.publish(definition)

    def keyring(self) -> Keyring:
        """Of a process that remembers nothing."""
        return Keyring(self.exchange.keys, lambda: self.keeper)

    def record(self, tenant: str, number: int, *, is_sealed: bool) -> bytes:
        definition: Definition = self.definitions[tenant]
        import_id, payload, key = f"imp_{tenant}", compress(BODY), None
        if is_sealed:
            keyring = self.keyring()
            key = keyring.new(tenant, import_id)
            payload = keyring.seal(tenant, definition.table.name, key, import_id).close(payload, str(number))
        header = ChunkHeader(
            import_id, number, number + 1, definition.fingerprint, "csv", 1, 1, 2, len(BODY), checksum(payload),
            TextLayout(("a",), ",", '"', ""), key=key,
        )  # fmt: skip
        return pack_chunk(header, payload)

    def judge(self, *records: bytes, is_cautious: bool = False) -> list[tuple[str, int]]:
        stops = Stops(self.exchange.stops, self.root, "0")
        found: Iterator[ReadChunk] = ChunkJudge(self.exchange, self.keyring(), stops, is_cautious).read(records)
        return [(one.definition.tenant, one.header.number) for one in found if one.judged and one.judged.accepted]

    def payload(self, record: bytes) -> bytes:
        return bytes(unpack_stamp(record)[1])

    def pass_by(self, appended: "Appended") -> None:
        """The query has durably read what was appended."""
        folder, batch = self.exchange.places.checkpoint(held.QUERY), len(appended.records)
        ends = {RAW_INPUT: {str(partition): batch + 1 for partition in range(6)}}
        for name, content in (("offsets", f"v1\n{{}}\n{orjson.dumps(ends).decode()}"), ("commits", "v1\n{}")):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / str(batch)).write_text(content)


class Appended(Appender):
    def __init__(self) -> None:
        self.records: list[bytes] = []

    def append(self, topic: str, _key: bytes, value: bytes, partition: int) -> "Future[AppendedRecord]":
        assert topic == RAW_INPUT
        self.records.append(value)
        done: Future[AppendedRecord] = Future()
        done.set_result(AppendedRecord(topic, partition, len(self.records)))
        return done


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_careful_task_holds_a_bounded_part_of_its_rows_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def apart(chunks: Sequence[UnjudgedChunk]) -> list[JudgedChunk]:
        given.append(len(chunks))
        return [judge(*one) for one in chunks]

    monkeypatch.setattr(judging, "judge_apart", apart)
    monkeypatch.setattr(judging, "APART_BYTES", 3 * len(BODY))
    plain = [world.record("other", number, is_sealed=False) for number in range(8)]
    assert world.judge(*plain, is_cautious=True) == [("other", number) for number in range(8)]
    assert given == [3, 3, 2]


@pytest.mark.parametrize("is_cautious", [False, True])
def test_rows_behind_a_sealed_chunk_go_on_while_its_keys_are_away(world: World, is_cautious: bool) -> None:
    sealed = [world.record("acme", number, is_sealed=True) for number in range(3)]
    plain = [world.record("other", number, is_sealed=False) for number in range(2)]
    world.keeper.is_away, world.keeper.asked = True, 0
    batch = (sealed[0], plain[0], sealed[1], plain[1], sealed[2])
    assert world.judge(*batch, is_cautious=is_cautious) == [("other", 0), ("other", 1)]
    assert world.keeper.asked == 1, "only the first chunk waits for an answer"
    assert world.judge(*batch) == [("other", 0), ("other", 1)], "a batch that runs again"

    appended = Appended()
    sender = HeldChunkSender(world.exchange, world.keyring(), appended, 6)
    sender.look("acme")
    assert appended.records == []
    assert sender._due["acme"] > 0, "asked again after a pause"
    world.keeper.is_away = False
    sender._due.clear()
    for _ in range(3):
        sender.look("acme")
    assert [world.payload(one) for one in appended.records] == [world.payload(one) for one in sealed], "each once"
    assert world.exchange.held_chunks.numbers("acme", "imp_acme") == {0, 1, 2}
    assert world.exchange.held_chunks.has_any("acme"), "until they are judged"
    world.exchange.stops.stop("imp_acme")
    assert world.judge(*appended.records) == [("acme", number) for number in range(3)], "a stop comes too late"
    world.pass_by(appended)
    sender.look("acme")
    assert world.exchange.held_chunks.tenants() == []
    assert world.exchange.held_chunks.numbers("acme", "imp_acme") == {0, 1, 2}, "the ledger may not have them yet"


def test_a_chunk_whose_keys_go_away_again_is_held_again(world: World) -> None:
    sealed = world.record("acme", 0, is_sealed=True)
    world.keeper.is_away = True
    world.judge(sealed)
    world.keeper.is_away = False
    appended = Appended()
    sender = HeldChunkSender(world.exchange, world.keyring(), appended, 6)
    sender.look("acme")
    world.keeper.is_away = True
    assert world.judge(*appended.records) == []
    world.pass_by(appended)
    world.keeper.is_away = False
    sender.look("acme")
    assert len(appended.records) == 2
    assert world.judge(appended.records[1]) == [("acme", 0)]


def test_a_chunk_that_kafka_does_not_take_stays_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = world.record("acme", 0, is_sealed=True)
    world.keeper.is_away = True
    world.judge(sealed)
    world.keeper.is_away = False
    appended = Appended()
    sender = HeldChunkSender(world.exchange, world.keyring(), appended, 6)
    with monkeypatch.context() as broken:
        broken.setattr(held, "chunk_partition", lambda *_: _fail())
        sender.look("acme")
    assert world.exchange.held_chunks.has_any("acme")
    sender._due.clear()
    sender.look("acme")
    assert [world.payload(one) for one in appended.records] == [world.payload(sealed)]


def test_what_is_held_goes_with_its_tenant(world: World) -> None:
    sealed = world.record("acme", 0, is_sealed=True)
    world.keeper.is_away = True
    world.judge(sealed)
    world.exchange.tenant_files.remove("acme")
    assert not world.exchange.held_chunks.has_any("acme")


def test_a_worker_that_is_killed_while_it_holds_a_chunk_leaves_nothing_that_counts_as_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_chunks, folder = world.exchange.held_chunks, world.exchange.held_chunks.home.held_chunks("acme")
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        held_chunks.hold("acme", "imp_acme", 0, b"chunk")
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(folder.iterdir())) == 1, "the unfinished file"
    assert not held_chunks.has_any("acme")
    assert held_chunks.tenants() == []
    assert world.judge(world.record("acme", 1, is_sealed=True)) == [("acme", 1)], "at once"
    held_chunks.forget_unfinished()
    assert folder.exists(), "it may be in use"
    [unfinished] = folder.iterdir()
    os.utime(unfinished, (0, 0))
    held_chunks.forget_unfinished()
    assert not folder.exists()


def test_unfinished_files_are_swept_beside_chunks_that_stay(world: World) -> None:
    held_chunks = world.exchange.held_chunks
    held_chunks.hold("acme", "imp_acme", 0, b"chunk")
    left = held_chunks.home.held_chunks("acme") / f".x{UNFINISHED}"
    left.touch()
    os.utime(left, (0, 0))
    held_chunks.forget_unfinished()
    assert not left.exists()
    assert held_chunks.has_any("acme")


def _fail() -> int:
    raise Unavailable("Kafka is away.")
