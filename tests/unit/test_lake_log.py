"""The log: replay, checkpoints and cleaning give the same snapshot, to us and to other readers of Delta."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import deltalake
import pytest

from millrace.lake.actions import AddFile, DeletionVector, remove_action
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.checkpointing import CHECKPOINT_INTERVAL, MOST_VERSIONS, clean
from millrace.lake.log import Conflict, Snapshot, commit, commit_name, fold, load, refresh
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.errors import Corrupt
from tests.support.lake import KEYED, KEYLESS, apply_rows, content, newest, read_by_polars, stage_chunks

UPDATES = [[(key, version) for key in range(version % 5, 700, 1 + version % 3)] for version in range(45)]


@pytest.fixture
def updated(tmp_path: Path) -> LakeTable:
    """A table with two checkpoints behind it and deletion vectors of both kinds."""
    table = LakeTable(Store(tmp_path), KEYED)
    for rows in UPDATES:
        apply_rows(table, rows)
    return table


def make_old(store: Store, hours: float) -> None:
    then = time.time() - hours * 3600
    for entry in store.list(LOG_FOLDER):
        os.utime(store.path(entry.name), (then, then))


def without_json_before_checkpoint(store: Store) -> None:
    for version in range(2 * CHECKPOINT_INTERVAL):
        store.delete(commit_name(version))


def test_a_checkpoint_holds_the_same_table(updated: LakeTable) -> None:
    replayed = load(updated.store)
    storages = {file.deletion_vector.storage for file in replayed.files.values() if file.deletion_vector}
    assert storages == {"u"}
    without_json_before_checkpoint(updated.store)
    assert load(updated.store) == replayed == updated.snapshot()


def test_other_readers_start_from_our_checkpoint(updated: LakeTable) -> None:
    without_json_before_checkpoint(updated.store)
    expected = newest(row for rows in UPDATES for row in rows)
    assert read_by_polars(updated.store.root) == expected == content(updated)


def test_we_start_from_another_writers_checkpoint(updated: LakeTable) -> None:
    expected = load(updated.store)
    for entry in updated.store.list(LOG_FOLDER):
        if "checkpoint" in entry.name:
            updated.store.delete(entry.name)
    deltalake.DeltaTable(str(updated.store.root)).create_checkpoint()
    for version in range(expected.version):
        updated.store.delete(commit_name(version))
    assert load(updated.store).files == expected.files
    assert load(updated.store).protocol == expected.protocol


def test_chunk_ids_survive_a_checkpoint_and_expire(tmp_path: Path) -> None:
    spec = replace(KEYLESS, chunk_memory=timedelta(days=1))
    table = LakeTable(Store(tmp_path), spec)
    for number in range(CHECKPOINT_INTERVAL + 1):
        table.apply([stage_chunks(table.store, {f"chunk {number}": [(number, number)]})])
    fresh = LakeTable(Store(tmp_path), spec)
    assert set(fresh.snapshot().transactions) == {f"chunk {number}" for number in range(CHECKPOINT_INTERVAL + 1)}
    forgetful = LakeTable(Store(tmp_path), replace(spec, chunk_memory=timedelta(0)))
    for number in range(100, 100 + CHECKPOINT_INTERVAL):
        forgetful.apply([stage_chunks(table.store, {f"chunk {number}": [(number, number)]})])
    assert "chunk 1" not in load(table.store).transactions


def test_cleaning_keeps_every_version_within_the_retention(updated: LakeTable) -> None:
    clean(updated.store, timedelta(hours=1), MOST_VERSIONS)
    assert updated.store.exists(commit_name(0)), "nothing is old enough"
    make_old(updated.store, hours=2)
    expected = load(updated.store)
    clean(updated.store, timedelta(hours=1), MOST_VERSIONS)
    assert not updated.store.exists(commit_name(2 * CHECKPOINT_INTERVAL - 1))
    assert updated.store.exists(commit_name(2 * CHECKPOINT_INTERVAL))
    assert load(updated.store) == expected
    with pytest.raises(Corrupt, match="Version 0"):
        load(updated.store, 3)


def test_a_handle_that_slept_through_cleaning_does_not_write_into_the_past(updated: LakeTable) -> None:
    sleeper = LakeTable(Store(updated.store.root), KEYED)
    sleeper._snapshot = load(updated.store, 3)
    make_old(updated.store, hours=2)
    clean(updated.store, timedelta(hours=1), MOST_VERSIONS)
    apply_rows(sleeper, [(5000, 1)])
    assert not updated.store.exists(commit_name(4))
    assert (5000, 1) in content(updated)


def test_a_version_is_committed_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    LakeTable(Store(tmp_path), KEYED).apply([])
    with pytest.raises(Conflict):
        commit(store, Snapshot(), [])
    first = load(store)
    second = commit(store, first, [])
    assert refresh(store, first) == second == load(store)


def test_a_remove_takes_only_the_file_with_its_own_deletion_vector() -> None:
    old = AddFile("a", 1, 9, 0, DeletionVector("i", "old", None, 4, 1))
    new = replace(old, deletion_vector=DeletionVector("i", "new", None, 4, 2))
    before = fold(Snapshot(), [old.to_json()], 0)
    marked = fold(before, [new.to_json(), remove_action(old)], 1)
    assert marked.files["a"].deletion_vector == new.deletion_vector
    assert fold(marked, [remove_action(old)], 2).files == marked.files
    assert fold(marked, [remove_action(new)], 2).files == {}


def test_an_incomplete_checkpoint_is_passed_over(updated: LakeTable) -> None:
    expected = load(updated.store)
    updated.store.write(f"{LOG_FOLDER}/{44:020}.checkpoint.{1:010}.{2:010}.parquet", b"half of it")
    assert load(updated.store) == expected


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_nobody_builds_on_an_entry_that_was_replaced(tmp_path: Path, how: str) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1)])
    apply_rows(table, [(2, 2)])
    path = Path(table.store.path(commit_name(table.snapshot().version)))
    written = path.read_bytes()
    if how == "by another file":
        path.unlink()
    path.write_bytes(b"x" * len(written))
    with pytest.raises(Corrupt, match=path.name):
        apply_rows(table, [(3, 3)])
    assert not table.store.exists(commit_name(2))
    path.write_bytes(written)
    apply_rows(table, [(3, 3)])
    assert content(table) == read_by_polars(tmp_path) == [(1, 1), (2, 2), (3, 3)]


def test_nobody_builds_on_a_replaced_entry_that_has_a_successor(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 1)])
    apply_rows(table, [(2, 2)])
    table.store.delete(commit_name(1))
    other = LakeTable(Store(tmp_path), KEYED)
    apply_rows(other, [(3, 3)])
    apply_rows(other, [(4, 4)])
    apply_rows(table, [(5, 5)])
    assert table.snapshot() == load(table.store)
    assert content(table) == read_by_polars(tmp_path) == [(1, 1), (3, 3), (4, 4), (5, 5)]
