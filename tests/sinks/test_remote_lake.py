"""A table elsewhere is the same table: the last one wins whoever writes, whatever is lost here, and plain readers read it."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from millrace.lake import checkpointing, compact
from millrace.lake.index import KeyIndex
from millrace.lake.keys import sidecar_name
from millrace.lake.read import live_files
from millrace.lake.remote import RemoteStore
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum
from millrace.outbound import s3
from tests.support.lake import KEYED, KEYLESS, apply_rows, content, newest, stage, stage_chunks, stage_mixed
from tests.support.remote_places import Place, in_a_bucket, in_hdfs, in_the_operators_bucket

PLACES = {
    "tenant-s3": ("s3", in_a_bucket),
    "operator-s3": ("s3", in_the_operators_bucket),
    "hdfs": ("mini_hdfs", in_hdfs),
}


@pytest.fixture(
    params=["tenant-s3", "operator-s3", pytest.param("hdfs", marks=(pytest.mark.slow, pytest.mark.timeout(600)))]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    server, make = PLACES[request.param]
    found: Place = make(request.getfixturevalue(server), tmp_path)  # type: ignore[operator]
    return found


class Crash(Exception):
    """The process ends here."""


class CrashingStore(RemoteStore):
    """Everything is uploaded, and the log entry is not."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if name.startswith("_delta_log/"):
            raise Crash
        return super().put_if_absent(name, data)


class ForgetfulStore(RemoteStore):
    """Its first log entry is there, and the answer that says so is lost."""

    forgot = False

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        won = super().put_if_absent(name, data)
        if name.startswith("_delta_log/") and not self.forgot:
            self.forgot = True
            return False
        return won


class OvertakenStore(RemoteStore):
    """Another writer commits just before the first commit through this store."""

    rival: Callable[[], object] | None = None

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if name.startswith("_delta_log/") and self.rival is not None:
            rival, self.rival = self.rival, None
            rival()
        return super().put_if_absent(name, data)


def test_one_of_many_gets_a_name_and_the_others_see_whose(place: Place) -> None:
    objects = place.objects()
    together = Barrier(16)

    def claim(number: int) -> bool:
        together.wait(30)
        return objects.put_if_absent("_delta_log/1.json", b"%d" % number)

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(claim, range(16)))
    assert won.count(True) == 1
    assert objects.get("_delta_log/1.json") == b"%d" % won.index(True)


def test_objects_are_listed_by_folder_read_in_parts_and_deleted_once_or_twice(place: Place, tmp_path: Path) -> None:
    objects = place.objects()
    assert list(objects.list("")) == []
    objects.put("a b+c.parquet", b"0123456789")
    objects.put("a b+c.parquet", b"9876543210")
    objects.put("_millrace/keys/x", b"x")
    assert [(entry.name, entry.size) for entry in objects.list("")] == [("a b+c.parquet", 10)]
    assert [entry.name for entry in objects.list("_millrace/keys")] == ["_millrace/keys/x"]
    assert objects.get_range("a b+c.parquet", 2, 3) == b"765"
    objects.fetch("a b+c.parquet", str(tmp_path / "fetched"))
    assert (tmp_path / "fetched").read_bytes() == b"9876543210"
    for _ in range(2):
        objects.delete("a b+c.parquet")
    with pytest.raises(FileNotFoundError):
        objects.size("a b+c.parquet")
    with pytest.raises(FileNotFoundError):
        objects.get("a b+c.parquet")


def test_rows_are_replaced_and_deleted_and_plain_readers_see_it(place: Place) -> None:
    table = LakeTable(place.open(), KEYED)
    apply_rows(table, [(key, 1) for key in range(2000)])
    apply_rows(table, [(key, 5) for key in range(0, 2000, 3)], [(1, 4), (2, 4)])
    table.apply([stage_mixed(table.store, [(1, 9, True), (3, 2, False)])])
    expected = newest([*((key, 5 if key % 3 == 0 else 1) for key in range(2000) if key != 1), (2, 4)])
    assert content(table) == expected
    assert place.read_by_deltalake() == expected
    if place.reader_options is not None:
        assert place.read_by_polars() == expected


def test_a_writer_that_was_overtaken_plans_again(place: Place) -> None:
    other = LakeTable(place.open(), KEYED)
    apply_rows(other, [(1, 1), (2, 1)])
    store = place.open(OvertakenStore)
    assert isinstance(store, OvertakenStore)
    store.rival = lambda: apply_rows(other, [(1, 7), (3, 7)])
    applied = LakeTable(store, KEYED).apply([stage(store, [(1, 5), (2, 5)])])
    assert (applied.version, applied.live_rows) == (2, 3), "one commit, on top of the rival's"
    assert content(other) == [(1, 7), (2, 5), (3, 7)]


def test_a_crash_between_upload_and_commit_shows_nothing_and_is_swept(place: Place) -> None:
    apply_rows(LakeTable(place.open(), KEYED), [(1, 1)])
    crashing = place.open(CrashingStore)
    with pytest.raises(Crash):
        apply_rows(LakeTable(crashing, KEYED), [(1, 5), (2, 5)])
    again = LakeTable(place.open(), KEYED)
    assert content(again) == [(1, 1)]
    for _ in range(2):
        apply_rows(again, [(1, 5), (2, 5)])
    assert again.snapshot().version == 1, "what was uploaded before is the same file, and it is committed once"
    with pytest.raises(Crash):
        apply_rows(LakeTable(crashing, KEYED), [(9, 9)])
    gone = vacuum(again.store, timedelta(0), timedelta(0))
    assert [name for name in gone if name.endswith(".parquet")], "the file that nobody committed"
    assert content(again) == place.read_by_deltalake() == [(1, 5), (2, 5)]


@pytest.mark.parametrize("spec", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_an_answer_that_is_lost_adds_no_row_twice(place: Place, spec: object) -> None:
    store = place.open(ForgetfulStore)
    table = LakeTable(store, spec)
    rows = [(1, 1), (2, 1)]
    table.apply([stage(store, rows) if spec is KEYED else stage_chunks(store, {"a": rows})])
    assert content(table) == rows
    assert table.snapshot().version == 0


def test_whatever_is_lost_here_is_found_there(place: Place) -> None:
    table = LakeTable(place.open(), KEYED)
    for version in range(1, 12):
        apply_rows(table, [(key, version) for key in range(version, 30)])
    table.apply([stage_mixed(table.store, [(7, 50, True)])])
    shutil.rmtree(table.store.root)
    apply_rows(table, [(3, 60), (4, 2)])
    elsewhere = LakeTable(place.open(), KEYED)
    apply_rows(elsewhere, [(7, 49), (8, 61)])
    expected = {**{key: min(key, 11) for key in range(1, 30)}, 3: 60, 8: 61}
    del expected[7]
    assert content(table) == content(elsewhere) == place.read_by_deltalake() == sorted(expected.items())


def test_a_table_made_anew_at_the_same_place_is_not_taken_for_the_old_one(place: Place) -> None:
    store, objects = place.open(), place.objects()
    apply_rows(LakeTable(store, KEYED), [(1, 1)])
    for folder in ("", "_delta_log", "_millrace/keys"):
        for entry in objects.list(folder):
            objects.delete(entry.name)
    apply_rows(LakeTable(place.open(), KEYED), [(2, 2)])
    assert content(LakeTable(RemoteStore(store.root, objects), KEYED)) == [(2, 2)]


def test_a_lost_key_file_is_made_again_from_the_rows(place: Place) -> None:
    table = LakeTable(place.open(), KEYED)
    staged = stage(table.store, [(1, 1), (2, 1)])
    table.apply([staged])
    table.store.delete(sidecar_name(staged.path))
    fresh = LakeTable(place.open(), KEYED)
    apply_rows(fresh, [(1, 5)])
    assert content(fresh) == [(1, 5), (2, 1)]
    assert fresh.store.exists(sidecar_name(staged.path))
    assert staged.path in fresh.store.absent([staged.path]), "of the rows only some columns were read"


def test_checkpoints_compaction_and_the_vacuum_work_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "CHECKPOINT_INTERVAL", 4)
    monkeypatch.setattr(compact, "MOST_SMALL_FILES", 3)
    table, rows = LakeTable(place.open(), KEYED), []
    for version in range(1, 8):
        part = [(key, version) for key in range(version * 3, 40)]
        rows += part
        apply_rows(table, part)
    fresh = LakeTable(place.open(), KEYED)
    fresh.maintain()
    assert len(fresh.snapshot().files) == 1
    checkpointing.clean(fresh.store, timedelta(0), checkpointing.MOST_VERSIONS)
    assert min(int(entry.name[11:31]) for entry in fresh.store.list("_delta_log") if entry.name[11:31].isdigit()) > 0
    vacuum(fresh.store, timedelta(0), timedelta(0))
    assert len([entry for entry in fresh.store.list("") if entry.name.endswith(".parquet")]) == 1
    apply_rows(table, [(1, 90)])
    expected = newest([*rows, (1, 90)])
    assert content(table) == content(LakeTable(place.open(), KEYED)) == place.read_by_deltalake() == expected


def test_a_truncation_reads_no_rows_that_are_not_here(place: Place) -> None:
    apply_rows(LakeTable(place.open(), KEYED), [(1, 1), (2, 1)], [(3, 9)])
    table = LakeTable(place.open(), KEYED)
    table.apply([], floor=5)
    assert [entry.name for entry in RemoteStore.__base__.list(table.store, "")] == []
    assert content(table) == place.read_by_deltalake() == [(3, 9)]


def test_copies_are_dropped_and_fetched_again(place: Place) -> None:
    table = LakeTable(place.open(), KEYED)
    apply_rows(table, [(1, 1)], [(2, 2)])
    names = [file.name for file in table.snapshot().files.values()]
    table.store.trim(1 << 30, timedelta(days=1))
    assert table.store.absent(names) == []
    table.store.trim(0, timedelta(days=1))
    assert table.store.absent(names) == [], "somebody may just have been told where they are"
    table.store.trim(1 << 30, timedelta(seconds=-1))
    assert sorted(table.store.absent(names)) == sorted(names)
    assert all(Path(file.path).is_file() for file in live_files(table.store, table.snapshot()))
    assert KeyIndex(table.store, KEYED.key).sidecar(next(iter(table.snapshot().files.values()))) is not None


def test_a_large_file_goes_in_parts(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "WHOLE_BYTES", 1 << 20)
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    large = tmp_path / "large"
    large.write_bytes(b"0123456789abcdef" * (12 << 16))
    objects = place.objects()
    objects.put_file("large.parquet", str(large))
    assert objects.size("large.parquet") == 12 << 20
    assert objects.get_range("large.parquet", (10 << 20) + 1, 5) == b"12345"
