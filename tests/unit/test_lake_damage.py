"""Damage to a table's own files is found, and mended from what is intact or refused in words. It is never taken for data."""

import random
import shutil
from datetime import timedelta
from pathlib import Path

import deltalake
import orjson
import pyarrow.parquet as pq
import pytest

from millrace.lake import actions
from millrace.lake.batch import FOLDER as UNPUBLISHED
from millrace.lake.batch import DefinedFile, keep_unpublished, unpublished_files
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.checkpointing import CHECKPOINT_INTERVAL
from millrace.lake.log import commit_name, load
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum
from millrace.model.errors import Corrupt
from millrace.seal.files import unseal
from tests.support.lake import KEYED, apply_rows, content, newest, read_by_deltalake, read_by_polars, stage

ROWS = [[(key, version) for key in range(version % 5, 60, 1 + version % 3)] for version in range(45)]
EXPECTED = newest(row for rows in ROWS for row in rows)
LAST = 2 * CHECKPOINT_INTERVAL


def checkpoint(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020}.checkpoint.parquet"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with two checkpoints. Nothing of its log was deleted yet."""
    root = tmp_path_factory.mktemp("damage") / "table"
    table = LakeTable(Store(root), KEYED)
    for rows in ROWS:
        apply_rows(table, rows)
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Store:
    shutil.copytree(written, tmp_path / "table")
    return Store(tmp_path / "table")


def damaged(data: bytes, how: str) -> bytes:
    if how == "empty":
        return b""
    if how == "cut":
        return data[: len(data) * 2 // 3]
    if how == "zeros":
        return bytes(len(data))
    return data[:100] + bytes([data[100] ^ 16]) + data[101:]


@pytest.mark.parametrize("how", ["empty", "cut", "zeros", "bit"])
def test_a_damaged_checkpoint_is_stepped_over_and_replaced(store: Store, how: str) -> None:
    whole = load(store)
    store.write(checkpoint(LAST), damaged(store.read(checkpoint(LAST)), how))
    assert load(store) == whole
    table = LakeTable(store, KEYED)
    apply_rows(table, [(1000, 1000)])
    assert not store.exists(checkpoint(LAST))
    now = table.snapshot().version
    assert orjson.loads(store.read(f"{LOG_FOLDER}/_last_checkpoint"))["version"] == now
    for version in range(now):
        store.delete(commit_name(version))
    assert content(table) == read_by_polars(store.root) == [*EXPECTED, (1000, 1000)]
    assert load(store).damaged == ()


def test_without_the_entries_before_it_a_damaged_checkpoint_is_refused(store: Store) -> None:
    store.write(checkpoint(LAST), b"")
    store.delete(checkpoint(CHECKPOINT_INTERVAL))
    store.delete(commit_name(0))
    with pytest.raises(Corrupt, match=checkpoint(LAST)) as refused:
        load(store)
    assert "Restore" in refused.value.remedy


def test_no_bit_of_a_checkpoint_can_change_the_table(store: Store) -> None:
    whole, data, luck = load(store), store.read(checkpoint(LAST)), random.Random(7)
    for at in luck.sample(range(8 * len(data)), 80):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        store.write(checkpoint(LAST), bytes(changed))
        assert load(store) == whole, f"bit {at} of {8 * len(data)}"


@pytest.mark.parametrize("how", ["empty", "zeros", "cut", "lines", "bit", "digit"])
def test_a_damaged_entry_is_refused_in_words(store: Store, how: str) -> None:
    name = commit_name(load(store).version)
    data = store.read(name)
    if how == "lines":
        changed = b"".join(data.splitlines(keepends=True)[:-1])
    elif how == "digit":
        at = data.index(b'"size":') + len(b'"size":')
        changed = data[:at] + (b"1" if data[at : at + 1] != b"1" else b"2") + data[at + 1 :]
    else:
        changed = damaged(data, how)
    Path(store.path(name)).write_bytes(changed)
    table = LakeTable(store, KEYED)
    with pytest.raises(Corrupt, match=name) as refused:
        apply_rows(table, [(1, 5000)])
    assert name in refused.value.remedy
    Path(store.path(name)).write_bytes(data)
    apply_rows(table, [(1000, 1000)])
    assert content(table) == [*EXPECTED, (1000, 1000)]


def test_a_damaged_pointer_to_the_last_checkpoint_changes_nothing(store: Store) -> None:
    store.write(f"{LOG_FOLDER}/_last_checkpoint", b"")
    assert content(LakeTable(store, KEYED)) == EXPECTED


def test_checkpoints_name_files_that_were_removed(store: Store) -> None:
    """So other engines' VACUUM keeps them within the retention."""
    table = LakeTable(store, KEYED)
    before = {file.name for file in load(store, 5).files.values()}
    table.maintain()
    while table.snapshot().version % CHECKPOINT_INTERVAL:
        apply_rows(table, [(2000, 10_000 + table.snapshot().version)])
    removed = pq.read_table(store.path(checkpoint(table.snapshot().version)), columns=["remove"])["remove"]
    paths = {row["path"] for row in removed.drop_null().to_pylist()}
    gone = before - {file.name for file in table.snapshot().files.values()}
    assert gone
    assert gone <= paths
    fresh = LakeTable(Store(store.root), KEYED)
    named, known = (
        {(file.path, file.deletion_vector) for file in handle.snapshot().removed.values()} for handle in (fresh, table)
    )
    assert named == known
    assert content(fresh) == read_by_deltalake(store.root) == read_by_polars(store.root)


def test_removed_files_are_named_until_their_retention_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LakeTable(store, KEYED)
    table.maintain()
    assert table.snapshot().removed
    week_ms = 7 * 86_400_000
    real = actions.now_ms
    for module in ("actions", "retained", "checkpointing"):
        monkeypatch.setattr(f"millrace.lake.{module}.now_ms", lambda: real() + week_ms + 60_000)
    while table.snapshot().version % CHECKPOINT_INTERVAL:
        apply_rows(table, [(2000, 10_000 + table.snapshot().version)])
    assert all(file.removed_ms > real() for file in table.snapshot().removed.values())


def test_a_checkpoint_of_the_second_kind_is_refused_in_words(store: Store) -> None:
    for entry in store.list(LOG_FOLDER):
        if "checkpoint" in entry.name or entry.name < commit_name(30):
            store.delete(entry.name)
    store.write(f"{LOG_FOLDER}/{29:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", b"")
    with pytest.raises(Corrupt, match="checkpoint of Delta's version 2"):
        load(store)


def test_a_checkpoint_in_several_parts_is_read(store: Store) -> None:
    whole = load(store)
    rows = pq.read_table(store.path(checkpoint(LAST)))
    half = rows.num_rows // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half)), start=1):
        pq.write_table(part, store.path(f"{LOG_FOLDER}/{LAST:020}.checkpoint.{number:010}.{2:010}.parquet"))
    for entry in store.list(LOG_FOLDER):
        if entry.name in (checkpoint(LAST), checkpoint(CHECKPOINT_INTERVAL)) or (
            entry.name.endswith(".json") and entry.name < commit_name(LAST)
        ):
            store.delete(entry.name)
    assert load(store) == whole
    assert deltalake.DeltaTable(str(store.root)).version() == whole.version


@pytest.mark.parametrize("how", ["empty", "cut", "zeros", "bit"])
def test_rows_that_are_staged_again_mend_their_damaged_file(tmp_path: Path, how: str) -> None:
    table, rows = LakeTable(Store(tmp_path), KEYED), [(key, 1) for key in range(50)]
    path = Path(table.store.path(stage(table.store, rows).path))
    path.write_bytes(damaged(path.read_bytes(), how))
    table.apply([stage(table.store, rows)])
    assert content(table) == read_by_deltalake(tmp_path) == rows


def test_a_damaged_record_of_an_import_that_is_not_published_is_refused_in_words(store: Store) -> None:
    keep_unpublished(store, "import", DefinedFile(stage(store, [(1000, 1000)])))
    (record,) = store.list(UNPUBLISHED)
    store.write(record.name, b"")
    with pytest.raises(Corrupt, match=record.name):
        unpublished_files(store, "import", {}.__getitem__)
    with pytest.raises(Corrupt, match=record.name):
        vacuum(store, timedelta(0), timedelta(0))


def test_a_missing_file_of_deletion_vectors_is_refused_in_words(store: Store) -> None:
    for path in store.root.glob("*.bin"):
        path.unlink()
    with pytest.raises(Corrupt, match="its file is missing"):
        content(LakeTable(store, KEYED))


def test_a_cut_copy_of_a_staged_file_is_copied_again(store: Store, tmp_path: Path) -> None:
    elsewhere = Store(tmp_path / "staged")
    staged = stage(elsewhere, [(1000, 1000)])
    store.write(staged.path, b"PAR1")
    unseal(elsewhere, staged, store)
    elsewhere.delete(staged.path)
    unseal(elsewhere, staged, store)
    table = LakeTable(store, KEYED)
    table.apply([staged])
    assert content(table) == [*EXPECTED, (1000, 1000)]


def test_a_flipped_bit_in_a_data_file_is_refused_in_words(store: Store) -> None:
    table = LakeTable(store, KEYED)
    file = max(load(store).files.values(), key=lambda file: file.size)
    path = Path(store.path(file.name))
    data = bytearray(path.read_bytes())
    data[200] ^= 4
    path.write_bytes(data)
    with pytest.raises(Corrupt, match=f"{file.name} of the Delta table .* is damaged") as refused:
        content(table)
    assert "RESTORE TABLE" in str(refused.value.remedy)
