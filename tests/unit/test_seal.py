"""What is sealed opens only where it belongs, and whoever reads through a sealed folder notices no difference."""

import io
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.api.sealing import Sealing
from millrace.deliver.queue import where_staged
from millrace.deliver.rows import ParkedRows
from millrace.exchange.definitions import DefinitionStore
from millrace.exchange.home import Home
from millrace.exchange.keys import KeyFiles
from millrace.exchange.places import Places
from millrace.formats.spool import SEGMENT_BYTES, Spool
from millrace.lake.errors_table import ERRORS_SCHEMA, REJECTED_SCHEMA, stored_rejected
from millrace.lake.log import load
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import ChunkHeader, ChunkVerdict
from millrace.model.errors import Corrupt, KeyGone, Unavailable
from millrace.model.names import chunk_id, new_id
from millrace.model.table import Definition
from millrace.plane.judging import opened
from millrace.read.error_pages import page
from millrace.seal.cipher import NONCE_BYTES
from millrace.seal.keyring import Keyring
from millrace.seal.kms_local import LocalKms
from millrace.sink.context import SinkContext
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.sink import DeltaSink, ErrorStore
from millrace.sink.delta.upkeep import Due, Upkeep, drop_delivered, tidy
from millrace.wire.envelope import checksum, compress, unpack_rows
from tests.support.queues import put, queue_at
from tests.support.revisions import ID, Revisions, column, rows_of, stage_under

MARK = b"nobody shall read this"
KEY = "imp_00000000000000000000000001"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "definitions").mkdir()
    return Home(tmp_path)


@pytest.fixture
def keyring(home: Home) -> Keyring:
    return Keyring(KeyFiles(home), lambda: LocalKms(home.root / "kms"))


def plain_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and MARK in path.read_bytes()]


# Keys


@pytest.mark.parametrize(
    "elsewhere",
    [("other", "t", KEY, "0"), ("acme", "u", KEY, "0"), ("acme", "t", "imp_2", "0"), ("acme", "t", KEY, "1")],
)
def test_a_piece_opens_only_where_it_belongs(keyring: Keyring, elsewhere: tuple[str, str, str, str]) -> None:
    tenant, table, owner, part = elsewhere
    for name in ("acme", "other"):
        keyring.new(name, KEY)
    sealed = keyring.seal("acme", "t", KEY, KEY).close(MARK, "0")
    assert keyring.seal("acme", "t", KEY, KEY).open(sealed, "0") == MARK
    with pytest.raises(Corrupt):
        keyring.seal(tenant, table, KEY, owner).open(sealed, part)


def test_no_nonce_serves_two_texts_and_the_same_text_is_sealed_the_same(keyring: Keyring) -> None:
    seal = keyring.seal("acme", "t", keyring.new("acme", KEY), KEY)
    pieces = [(text, part) for text in (b"", b"a", b"b", MARK) for part in ("0", "1")]
    assert len({seal.close(text, part)[:NONCE_BYTES] for text, part in pieces}) == len(pieces)
    again = Keyring(keyring.keys, lambda: keyring.kms).seal("acme", "t", KEY, KEY)
    assert all(again.close(text, part) == seal.close(text, part) for text, part in pieces)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: bytes([b[0] ^ 1]) + b[1:], lambda b: b""]
)
def test_a_damaged_piece_does_not_open(keyring: Keyring, damage: object) -> None:
    seal = keyring.seal("acme", "t", keyring.new("acme", KEY), KEY)
    with pytest.raises(Corrupt):
        seal.open(damage(seal.close(MARK, "0")), "0")  # type: ignore[operator]


def test_a_chunk_of_another_import_fails_and_does_not_pass_for_its_own(keyring: Keyring) -> None:
    revisions = Revisions()
    definition = revisions.add(ID)
    seal = keyring.seal("acme", "t", keyring.new("acme", KEY), KEY)
    payload = seal.close(compress(MARK), "3")
    header = ChunkHeader(
        KEY, 3, 3, definition.fingerprint, "csv", 1, 1, 1, len(MARK), checksum(payload), key=KEY
    )  # fmt: skip
    assert unpack_rows(header, memoryview(payload), lambda p: opened(header, p, definition, keyring)) == MARK
    for moved in (replace(header, number=4), replace(header, import_id="imp_other")):
        with pytest.raises(Corrupt):
            unpack_rows(moved, memoryview(payload), lambda p, m=moved: opened(m, p, definition, keyring))  # type: ignore[misc]


def test_two_who_make_a_key_at_once_have_the_same(home: Home) -> None:
    rings = [Keyring(KeyFiles(home), lambda: LocalKms(home.root / "kms")) for _ in range(8)]
    threads = [threading.Thread(target=ring.new, args=("acme", KEY)) for ring in rings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({ring.seal("acme", "t", KEY, KEY).close(MARK, "0") for ring in rings}) == 1


def test_a_process_without_a_tenant_that_asks_for_it_pays_for_no_keeper(tmp_path: Path) -> None:
    script = (
        "import sys; from millrace.settings import KEYS_HERE; from pathlib import Path; "
        "from millrace.exchange.home import Home; from millrace.exchange.keys import KeyFiles, keyring_of; "
        "ring = keyring_of(KeyFiles(Home(Path(sys.argv[1]))), KEYS_HERE); ring.keys.has_any('acme'); "
        "print('tink' in sys.modules); "
        "ring.new('acme', 'imp_1'); print('tink' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "True"]


def test_rotation_wraps_anew_and_leaves_what_was_sealed(home: Home, keyring: Keyring) -> None:
    keys = [keyring.new("acme", new_id("imp")) for _ in range(3)]
    sealed = {key: keyring.seal("acme", "t", key, key).close(MARK, "0") for key in keys}
    before = {path: path.read_bytes() for path in home.data_keys("acme").rglob("*.json")}
    keyring.kms.rotate("acme")
    assert keyring.rewrap("acme") == 3
    assert all(path.read_bytes() != wrapped for path, wrapped in before.items())
    fresh = Keyring(KeyFiles(home), lambda: LocalKms(home.root / "kms"))
    assert all(fresh.seal("acme", "t", key, key).open(sealed[key], "0") == MARK for key in keys)


def test_nothing_opens_when_the_tenant_key_is_destroyed(home: Home, keyring: Keyring) -> None:
    keyring.new("acme", KEY)
    keyring.new("other", KEY)
    keyring.destroy("acme")
    with pytest.raises(KeyGone):
        keyring.seal("acme", "t", KEY, KEY)
    assert keyring.seal("other", "t", KEY, KEY), "another's is untouched"
    keyring.new("acme", "imp_new")
    assert keyring.seal("acme", "t", "imp_new", "imp_new"), "what comes later has a new key"
    with pytest.raises(KeyGone):
        keyring.seal("acme", "t", KEY, KEY)


def test_a_destroyed_key_stops_neither_what_comes_next_nor_a_rotation(home: Home, keyring: Keyring) -> None:
    elsewhere = Keyring(KeyFiles(home), lambda: keyring.kms)
    before = keyring.of_this_hour("acme")
    assert keyring.of_this_hour("acme") == before, "one for an hour"
    elsewhere.seal("acme", "t", before, "imp_1")
    keyring.destroy("acme")
    with pytest.raises(KeyGone):
        elsewhere.seal("acme", "t", before, "imp_1")
    after = keyring.of_this_hour("acme")
    assert after != before
    assert elsewhere.seal("acme", "t", after, "imp_2")
    keyring.kms.rotate("acme")
    assert keyring.rewrap("acme") == 1, "what nobody can read is left as it is"


def test_a_folder_of_keys_that_is_not_mounted_is_away_and_gets_no_new_keys(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    keyring = Keyring(KeyFiles(home), lambda: LocalKms(folder))
    keyring.new("acme", KEY)
    folder.rename(tmp_path / "unmounted")
    late = Keyring(KeyFiles(home), lambda: LocalKms(folder))
    with pytest.raises(Unavailable):
        late.seal("acme", "t", KEY, KEY)
    with pytest.raises(Unavailable):
        late.new("acme", "imp_2")
    assert not list(folder.glob("*.json"))
    shutil.rmtree(folder, ignore_errors=True)
    (tmp_path / "unmounted").rename(folder)
    assert late.seal("acme", "t", KEY, KEY)


# Folders


def test_sealed_files_lie_beside_plain_ones(home: Home, keyring: Keyring) -> None:
    seal = keyring.seal("acme", "t", keyring.new("acme", KEY), KEY)
    store = Places(home).staging_store(keyring, "acme", "t", seal)
    Store(store.root).write("plain", MARK)
    assert store.put_if_absent("put", MARK)
    assert not store.put_if_absent("put", b"other")
    store.write("_x/written", MARK)
    with store.creating("created") as file:
        file.write(MARK)
    reader = Places(home).staging_store(Keyring(KeyFiles(home), lambda: keyring.kms), "acme", "t")
    for name in ("plain", "put", "_x/written", "created"):
        assert (reader.read(name), bytes(reader.map(name)), reader.size(name)) == (MARK, MARK, len(MARK))
        source = reader.source(name)
        assert (Path(source).read_bytes() if isinstance(source, str) else source.read()) == MARK
    assert [path.name for path in plain_below(store.root)] == ["plain"]
    os.rename(store.root / "put", store.root / "moved")
    with pytest.raises(Corrupt):
        reader.read("moved")
    assert seal.digest(MARK) == store.digest(MARK) != Store(store.root).digest(MARK)


# The sinks


class Lake:
    """A table of the tenant acme whose rows are sealed on their way."""

    def __init__(self, home: Home, keyring: Keyring) -> None:
        self.home, self.keyring = home, keyring
        self.revisions = Revisions(key=("id",))
        self.definition = self._define()
        self.sink = DeltaSink(Places(home), DefinitionStore(home), Upkeep(), keyring)
        self.key = keyring.new("acme", KEY)

    def _define(self) -> Definition:
        definition = self.revisions.add(ID, column("text", ["null", "string"]))
        self.home.definition(definition.fingerprint).write_bytes(definition.to_json())
        return definition

    def group(self, version: int, *rows: dict[str, object], publish: str = "rolling") -> StagedGroup:
        seal = self.keyring.seal("acme", "t", self.key, f"imp{version}")
        staged = stage_under(
            Places(self.home).staging_store(self.keyring, "acme", "t", seal), self.definition, version, rows
        )
        staged = replace(staged, sealed_by=self.key)
        chunks = ((f"imp{version}", 0),)
        return StagedGroup("acme", "t", self.definition.fingerprint, staged, chunks, version=version, publish=publish)

    def texts(self) -> dict[int, str | None]:
        table = LakeTable(Store(self.home.table("acme", "t")), self.revisions.open(self.home.root / "x").spec)
        return {row["id"]: row["text"] for row in rows_of(table)}


@pytest.fixture
def lake(home: Home, keyring: Keyring) -> Lake:
    return Lake(home, keyring)


def test_sealed_rows_become_plain_in_the_table_and_nowhere_else(lake: Lake) -> None:
    groups = [
        lake.group(1, {"id": 1, "text": MARK.decode()}, {"id": 2, "text": "b"}),
        lake.group(2, {"id": 2, "_deleted": True}, {"id": 3, "text": MARK.decode()}),
    ]
    assert plain_below(lake.home.root) == []
    lake.sink.write(groups)
    lake.sink.write(groups[::-1])
    assert lake.texts() == {1: MARK.decode(), 3: MARK.decode()}
    assert plain_below(lake.home.root / "staged") == []


def test_rows_held_for_their_import_stay_sealed_until_it_is_published(lake: Lake) -> None:
    lake.sink.write([lake.group(5, {"id": 1, "text": MARK.decode()}, publish="atomic")])
    assert plain_below(lake.home.root) == []
    fingerprint = lake.definition.fingerprint
    lake.sink.write([StagedGroup("acme", "t", fingerprint, None, (("imp5", 1),), "publish", 6)])
    assert lake.texts() == {1: MARK.decode()}


def test_sealed_rows_go_when_they_are_old_and_nothing_as_old_is_under_way(lake: Lake) -> None:
    lake.sink.write([lake.group(1, {"id": 1, "text": "a"}, {"id": 9, "_deleted": True})])
    lake.sink.write([lake.group(5, {"id": 2, "text": "held"}, {"id": 8, "_deleted": True}, publish="atomic")])
    staged = lake.home.staged("acme", "t")
    for path in staged.rglob("*"):
        os.utime(path, (1_000_000, 1_000_000))
    there = {path for path in staged.rglob("*") if path.is_file()}
    drop_delivered(Places(lake.home), NO_FLOOR)
    assert {path for path in staged.rglob("*") if path.is_file()} == there, "who knows what is under way"
    drop_delivered(Places(lake.home), 2_000_000_000_000)
    left = {path for path in staged.rglob("*") if path.is_file()}
    assert left < there
    lake.sink.write([StagedGroup("acme", "t", lake.definition.fingerprint, None, (("imp5", 1),), "publish", 6)])
    assert lake.texts() == {1: "a", 2: "held"}, "all that is held was kept"


def test_rows_whose_key_is_gone_stop_nobody(lake: Lake) -> None:
    group = lake.group(1, {"id": 1, "text": "a"})
    lake.keyring.destroy("acme")
    other = Keyring(KeyFiles(lake.home), lambda: lake.keyring.kms)
    lake.key = other.new("acme", "imp_later")
    later = lake.group(2, {"id": 2, "text": "b"})
    assert lake.sink.write([group, later]) == [later], "nobody hears that the others are durable"
    assert lake.texts() == {2: "b"}


def test_parked_rows_are_opened_when_they_are_delivered(lake: Lake) -> None:
    group = lake.group(1, {"id": 1, "text": MARK.decode()}, {"id": 2, "_deleted": True})
    queue = queue_at(lake.home, "postgres", "acme", "t", "warehouse")
    put(queue, group, where_staged(Places(lake.home), group))
    assert plain_below(queue.pins.folder) == []
    parked = ParkedRows(Places(lake.home), lake.keyring, queue.pins, lake.definition, lambda _: lake.definition, (0, 0))
    (item,) = queue.items()
    (parts,) = parked.of(item)
    rows = [row for batch in parts.open() for row in batch.to_pylist()]
    assert [(row["id"], row["text"], row["_deleted"]) for row in rows] == [(1, MARK.decode(), False), (2, None, True)]
    assert parts.staged is None, "a sealed file cannot be taken over as it is"


# The error store


def reject(home: Home, keyring: Keyring, import_id: str, rows: int = 3) -> StagedGroup:
    seal = keyring.seal("acme", "t", keyring.new("acme", import_id), import_id)
    reason = {"column": "a", "rule": "type", "message": MARK.decode(), "value": MARK.decode()}
    texts = [{"row": n, "line": n, "raw": MARK, "reasons": [reason]} for n in range(1, rows + 1)]
    stored = stored_rejected(ChunkVerdict(import_id, 0, 1, rows, 0, rows), pa.Table.from_pylist(texts, REJECTED_SCHEMA))
    store = Places(home).error_store(keyring, "acme", "t", seal)
    chunk = StagedChunk(chunk_id(import_id, 0), 0, rows, 1)
    staged = write_data_file(store, stored, (), f"{import_id}-00000000", (chunk,))
    return StagedGroup("acme", "t", "none", staged, ((import_id, 0),))


def test_rejected_rows_stay_sealed_also_when_files_are_merged(home: Home, keyring: Keyring) -> None:
    errors = ErrorStore(SinkContext(Places(home)), ERRORS_SCHEMA, Upkeep(), keyring)
    imports = [new_id("imp") for _ in range(60)]
    for import_id in imports:
        errors.write([reject(home, keyring, import_id)])
    root = home.table_errors("acme", "t")
    store = Places(home).error_store(Keyring(KeyFiles(home), lambda: keyring.kms), "acme", "t")
    assert len(load(store).files) == 60
    spec = TableSpec(name="errors", schema=ERRORS_SCHEMA, key=(), deletion_vectors="auto")
    tidy(Due(root, spec), SinkContext(Places(home)), keyring, NO_FLOOR)
    assert len(load(store).files) < 60
    for import_id in (imports[0], imports[-1]):
        shown = page(store, import_id, None, 10).items
        assert [row["raw"] for row in shown] == [MARK.decode()] * 3
    assert plain_below(root) == []
    merged = [name for name in load(store).files if "compacted" in name]
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(root / merged[0])


def test_rejected_rows_from_before_the_flag_are_read_beside_the_sealed(home: Home, keyring: Keyring) -> None:
    errors = ErrorStore(SinkContext(Places(home)), ERRORS_SCHEMA, Upkeep(), keyring)
    plain, sealed = new_id("imp"), new_id("imp")
    reason = {"column": "a", "rule": "type", "message": "m", "value": "v"}
    row = pa.Table.from_pylist([{"row": 1, "line": 1, "raw": b"old", "reasons": [reason]}], REJECTED_SCHEMA)
    stored = stored_rejected(ChunkVerdict(plain, 0, 1, 1, 0, 1), row)
    chunk = StagedChunk(chunk_id(plain, 0), 0, 1, 1)
    staged = write_data_file(Store(home.table_errors("acme", "t")), stored, (), f"{plain}-00000000", (chunk,))
    errors.write([StagedGroup("acme", "t", "none", staged, ((plain, 0),)), reject(home, keyring, sealed, 1)])
    store = Places(home).error_store(keyring, "acme", "t")
    assert [page(store, one, None, 10).items[0]["raw"] for one in (plain, sealed)] == ["old", MARK.decode()]
    keyring.destroy("acme")
    with pytest.raises(KeyGone):
        page(Places(home).error_store(Keyring(KeyFiles(home), lambda: keyring.kms), "acme", "t"), sealed, None, 10)


def test_files_that_nobody_can_read_leave_the_error_store_with_the_key(home: Home, keyring: Keyring) -> None:
    errors, sealing = ErrorStore(SinkContext(Places(home)), ERRORS_SCHEMA, Upkeep(), keyring), object.__new__(Sealing)
    sealing._places, sealing.keyring = Places(home), keyring
    old = [new_id("imp") for _ in range(60)]
    for import_id in old:
        errors.write([reject(home, keyring, import_id, 1)])
    spec = TableSpec(name="errors", schema=ERRORS_SCHEMA, key=(), deletion_vectors="auto")
    tidy(Due(home.table_errors("acme", "t"), spec), SinkContext(Places(home)), keyring, NO_FLOOR)
    sealing.discard_errors("acme")
    keyring.destroy("acme")
    new = new_id("imp")
    errors.write([reject(home, keyring, new, 1)])
    store = Places(home).error_store(keyring, "acme", "t")
    assert [row["raw"] for row in page(store, new, None, 10).items] == [MARK.decode()]
    assert page(store, old[0], None, 10).items == []
    tidy(Due(home.table_errors("acme", "t"), spec), SinkContext(Places(home)), keyring, NO_FLOOR)


# What is spooled


@given(st.data())
def test_a_spool_reads_like_the_bytes_that_were_written(data: st.DataObject) -> None:
    content = os.urandom(data.draw(st.sampled_from([0, 1, SEGMENT_BYTES - 1, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 5])))
    spool, expected = Spool(None), io.BytesIO(content)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=4)))
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        spool.write(memoryview(content)[start:end])
    spool.whole()
    for _ in range(5):
        at, size = data.draw(st.integers(0, len(content) + 3)), data.draw(st.integers(0, 2 * SEGMENT_BYTES))
        assert (spool.seek(at), expected.seek(at)) == (at, at)
        assert spool.read(size) == expected.read(size)
    assert spool.seek(0, io.SEEK_END) == len(content)
    spool.close()


def test_what_is_spooled_is_noise_on_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write(MARK * 100_000)
    spool.whole()
    spool._file.seek(0)
    assert MARK not in spool._file.read()
    assert spool.read(len(MARK)) == MARK
    spool.close()


def test_a_destroyed_key_is_also_gone_from_what_a_killed_process_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kms = LocalKms(tmp_path)
    kms.wrap("acme", b"secret", "context")
    with monkeypatch.context() as killed:
        # A process that is killed removes nothing and renames nothing.
        for name in ("unlink", "replace"):
            killed.setattr(f"millrace.atomic.os.{name}", lambda *_: None)
        kms.rotate("acme")
    assert [path for path in tmp_path.iterdir() if path.suffix == ".partial"]
    kms.destroy("acme")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "acme.gone"}
