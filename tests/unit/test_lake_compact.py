"""Compaction and vacuum change no row a reader sees, also while others write."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from millrace.lake.actions import AddFile, remove_action
from millrace.lake.compact import MOST_BYTES, MOST_ROWS, MOST_SMALL_FILES, plan, run
from millrace.lake.core_share import CoreShare
from millrace.lake.keys import KEYS_FOLDER
from millrace.lake.log import Snapshot, load
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import RECORD, vacuum
from tests.support.foreign import commit
from tests.support.lake import (
    KEYED,
    KEYLESS,
    RivalStore,
    apply_rows,
    assert_keys_once_in_every_version,
    content,
    newest,
    read_by_polars,
    stage,
    stage_chunks,
    stage_mixed,
)

NOW = timedelta(0)
HOUR = timedelta(hours=1)


@pytest.fixture
def scattered(tmp_path: Path) -> LakeTable:
    table = LakeTable(Store(tmp_path), KEYED)
    for version in range(MOST_SMALL_FILES + 1):
        apply_rows(table, [(10 * version + n, version) for n in range(12)])
    return table


def make_old(store: Store, hours: float) -> None:
    then = time.time() - hours * 3600
    for folder in ("", KEYS_FOLDER, "_millrace/runs", "_millrace/tmp"):
        for entry in store.list(folder):
            os.utime(store.path(entry.name), (then, then))


def test_many_small_files_become_one(scattered: LakeTable) -> None:
    before, snapshot = content(scattered), scattered.snapshot()
    (rewrite,) = plan(snapshot)
    version = run(scattered.store, KEYED, rewrite)
    assert version == snapshot.version + 1
    after = scattered.snapshot()
    (file,) = after.files.values()
    assert (file.rows, file.deletion_vector) == (len(before), None)
    assert content(scattered) == read_by_polars(scattered.store.root) == before
    assert plan(after) == []


def test_compaction_says_that_no_data_changed(scattered: LakeTable) -> None:
    (rewrite,) = plan(scattered.snapshot())
    version = run(scattered.store, KEYED, rewrite)
    text = scattered.store.read(f"_delta_log/{version:020}.json")
    assert b'"dataChange":false' in text
    assert b'"dataChange":true' not in text


def test_a_file_more_than_a_quarter_dead_is_rewritten(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(100)])
    apply_rows(table, [(key, 2) for key in range(25)])
    assert plan(table.snapshot()) == []
    apply_rows(table, [(key, 2) for key in range(25, 30)])
    table.maintain()
    assert sorted(file.rows for file in table.snapshot().files.values()) == [5, 25, 70]
    assert content(table) == newest([*((key, 1) for key in range(100)), *((key, 2) for key in range(30))])


def test_rows_that_die_during_a_rewrite_stay_dead(scattered: LakeTable) -> None:
    apply_rows(scattered, [(10 * version + 2, 98) for version in range(MOST_SMALL_FILES)])
    batches = [[(key, 99) for key in range(5, 200, 3)], [(0, 100), (1, 100), (12, 5), (507, 100)]]
    expected = newest([*content(scattered), *batches[0], *batches[1]])
    (rewrite,) = plan(scattered.snapshot())
    store = RivalStore(scattered.store.root, [lambda: apply_rows(scattered, batches.pop(0))] * 2)
    assert run(store, KEYED, rewrite) == scattered.snapshot().version
    assert content(scattered) == read_by_polars(store.root) == expected
    assert_keys_once_in_every_version(scattered, first=MOST_SMALL_FILES)


def test_a_rewrite_ends_when_one_of_its_files_is_gone(scattered: LakeTable) -> None:
    rows = [(key, 99) for key in range(12)]
    expected = newest([*content(scattered), *rows])
    (rewrite,) = plan(scattered.snapshot())
    store = RivalStore(scattered.store.root, [lambda: apply_rows(scattered, rows)])
    assert run(store, KEYED, rewrite) is None
    assert content(scattered) == expected


def test_a_rewrite_ends_when_another_engine_brings_deleted_rows_back(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(100)])
    before, earlier = content(table), table.snapshot().files.values()
    table.apply([stage_mixed(table.store, [(key, 2, True) for key in range(40)])])
    (rewrite,) = plan(table.snapshot())
    removes = [remove_action(file) for file in table.snapshot().files.values()]
    restore = [*removes, *(file.to_json() for file in earlier)]
    assert run(RivalStore(tmp_path, [lambda: commit(tmp_path, *restore)]), KEYED, rewrite) is None
    assert content(table) == read_by_polars(tmp_path) == before


def test_updates_after_compaction_find_the_moved_rows(scattered: LakeTable) -> None:
    before = content(scattered)
    LakeTable(Store(scattered.store.root), KEYED).maintain()
    updates = [(key, 200) for key in range(0, 500, 7)]
    apply_rows(scattered, updates)
    assert content(scattered) == newest([*before, *updates])
    before = scattered.snapshot()
    assert scattered.apply([stage(scattered.store, [(0, 0), (1, 0)])]) == before
    assert_keys_once_in_every_version(scattered, first=MOST_SMALL_FILES)


def test_tables_without_key_are_compacted_and_still_know_their_chunks(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    chunks = {f"chunk {n}": [(n, n), (n, n)] for n in range(MOST_SMALL_FILES + 1)}
    for chunk_id, rows in chunks.items():
        table.apply([stage_chunks(table.store, {chunk_id: rows})])
    before = content(table)
    table.maintain()
    assert len(table.snapshot().files) == 1
    table.apply([stage_chunks(table.store, chunks, "again")])
    assert content(table) == before


def test_vacuum_deletes_what_has_been_unreferenced_for_the_retention(scattered: LakeTable) -> None:
    store, before = scattered.store, content(scattered)
    scattered.maintain()
    old_version = load(store).version - 1
    assert vacuum(store, HOUR, NOW) == [], "removed a moment ago: readers may still be at it"
    assert content(scattered, old_version) == before
    make_old(store, hours=2)
    assert vacuum(store, HOUR, NOW) == [], "old, but seen unreferenced only a moment ago"
    deleted = vacuum(store, NOW, NOW)
    assert len([name for name in deleted if name.endswith(".parquet")]) == MOST_SMALL_FILES + 1
    assert {entry.name for entry in store.list("")} >= {file.name for file in load(store).files.values()}
    assert len(store.list(KEYS_FOLDER)) == len(load(store).files)
    assert content(scattered) == read_by_polars(store.root) == before


@pytest.mark.parametrize("note", [b"", b"null", b'{"part', b'{"part": "yesterday"}'])
def test_a_damaged_note_of_the_vacuum_only_prolongs_the_retention(scattered: LakeTable, note: bytes) -> None:
    scattered.maintain()
    make_old(scattered.store, hours=2)
    scattered.store.write(RECORD, note)
    assert vacuum(scattered.store, HOUR, NOW) == []
    assert len(vacuum(scattered.store, NOW, NOW)) > MOST_SMALL_FILES


def test_vacuum_keeps_young_staged_files_and_vectors(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(20_000)])
    apply_rows(table, [(key, 2) for key in range(0, 20_000, 7)])
    left = stage(table.store, [(1, 9)], prefix="left")
    table.store.write("_millrace/tmp/abandoned", b"x")
    assert vacuum(table.store, NOW, HOUR) == []
    make_old(table.store, hours=2)
    young = stage(table.store, [(2, 9)], prefix="young")
    deleted = vacuum(table.store, NOW, HOUR)
    assert {left.path, left.sidecar, "_millrace/tmp/abandoned"} <= set(deleted)
    assert any(entry.name.endswith(".bin") for entry in table.store.list(""))
    table.apply([young])
    assert content(table) == newest(
        [*((key, 1) for key in range(20_000)), *((key, 2) for key in range(0, 20_000, 7)), (2, 9)]
    )


def grown(count: int, size: int, rows: int) -> tuple[list[AddFile], int]:
    """Files after as many commits, with upkeep after every twenty, and the bytes that upkeep has written."""
    files: dict[str, AddFile] = {}
    written = 0
    for number in range(count):
        files[f"part-{number}"] = AddFile(f"part-{number}", size, rows, 0)
        if number % 20 == 19:
            for group in plan(Snapshot(files=files)):
                merged = AddFile(f"merged-{number}-{len(files)}-{group[0].path}", 0, 0, 0)
                for file in group:
                    del files[file.path]
                    merged = replace(merged, size=merged.size + file.size, rows=merged.rows + file.rows)
                files[merged.path], written = merged, written + merged.size
    return list(files.values()), written


@pytest.mark.parametrize("size", [20_000, 400_000, 3 << 20, 30 << 20])
def test_files_grow_towards_their_size_and_no_row_is_merged_more_than_three_times(size: int) -> None:
    count = 4000
    files, written = grown(count, size, 1000)
    assert written <= 3 * count * size
    assert max(file.size for file in files) <= MOST_BYTES
    large = [file for file in files if file.size >= MOST_BYTES // 2]
    assert len(files) - len(large) <= MOST_SMALL_FILES + 20 + 7 + 7
    if size * count > 1 << 30:
        assert sum(file.size for file in large) > 0.4 * size * count


def test_files_with_many_rows_are_merged_up_to_a_number_of_rows() -> None:
    files, _ = grown(200, 2 << 20, 300_000)
    assert max(file.rows for file in files) <= MOST_ROWS
    assert len(files) < 40


def test_upkeep_pauses_to_stay_within_its_share_of_the_cores() -> None:
    paused: list[float] = []
    share = CoreShare(0.01, paused.append)
    CoreShare(1.0, paused.append).rest()
    assert paused == []
    begun = time.process_time()
    while time.process_time() - begun < 0.02:
        pass
    share.rest()
    assert len(paused) == 1
    assert paused[0] > 0.1 / (os.cpu_count() or 1)
