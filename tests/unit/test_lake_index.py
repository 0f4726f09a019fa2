"""The index is a cache of sidecars, sidecars of rows: losing any of it, at any moment, changes no answer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from millrace.lake import key_merge
from millrace.lake import table as tables
from millrace.lake.index import KeyIndex
from millrace.lake.key_format import read_keys
from millrace.lake.key_merge import merge_keys
from millrace.lake.keys import KEYS_FOLDER, RUNS_FOLDER
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.lake import KEYED, apply_rows, assert_keys_once_in_every_version, content, newest, stage

BATCHES = [[(key % 40, version) for key in range(3 * version, 3 * version + 12)] for version in range(20)]


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    table = LakeTable(Store(tmp_path), KEYED)
    for rows in BATCHES:
        apply_rows(table, rows)
    return table


def cut_short(store: Store, name: str) -> None:
    store.write(name, store.read(name)[:-9])


def garbage(store: Store, name: str) -> None:
    store.write(name, b"MRKEYS01" + b"\xff" * 100)


def of_another_file(store: Store, name: str) -> None:
    others = [entry.name for entry in store.list(KEYS_FOLDER) if entry.name != name]
    store.write(name, store.read(others[0]))


def check_updates(root: Path) -> None:
    """A handle that remembers nothing finds every key."""
    fresh = LakeTable(Store(root), KEYED)
    apply_rows(fresh, [(key, 100) for key in range(0, 40, 2)])
    expected = newest([*(row for rows in BATCHES for row in rows), *((key, 100) for key in range(0, 40, 2))])
    assert content(fresh) == expected
    assert_keys_once_in_every_version(fresh)


def test_small_key_files_are_merged_into_few(table: LakeTable) -> None:
    runs = [read_keys(table.store, entry.name) for entry in table.store.list(RUNS_FOLDER)]
    covered = {path for run in runs if run for path in run.files}
    assert 1 <= len(runs) <= 2
    assert len(covered & set(table.snapshot().files)) > len(table.snapshot().files) / 2
    check_updates(table.store.root)


@pytest.mark.parametrize("damage", [Store.delete, cut_short, garbage])
@pytest.mark.parametrize("folder", [RUNS_FOLDER, KEYS_FOLDER])
def test_lost_or_damaged_key_files_change_no_answer(
    table: LakeTable, folder: str, damage: Callable[[Store, str], None]
) -> None:
    damaged = table.store.list(folder)
    assert damaged
    for entry in damaged:
        damage(table.store, entry.name)
    check_updates(table.store.root)


def test_a_sidecar_of_another_file_is_not_believed(table: LakeTable) -> None:
    for entry in table.store.list(RUNS_FOLDER):
        table.store.delete(entry.name)
    for entry in table.store.list(KEYS_FOLDER)[1:]:
        of_another_file(table.store, entry.name)
    check_updates(table.store.root)


def test_a_crash_between_staging_and_commit_leaves_no_trace(table: LakeTable) -> None:
    staged = stage(table.store, [(1, 50), (2, 50)], prefix="lost")
    stage(table.store, [(3, 50)], prefix="lost")
    table.store.delete(staged.path)
    before = content(table)
    table.store.write("_millrace/tmp/abandoned", b"half a file")
    table.maintain()
    assert content(table) == before
    check_updates(table.store.root)


def test_the_same_file_staged_again_is_the_same_file(table: LakeTable) -> None:
    first = stage(table.store, [(1, 50), (2, 50)])
    assert stage(table.store, [(1, 50), (2, 50)]) == first


def test_runs_about_files_that_are_gone_are_ignored_and_dropped(table: LakeTable) -> None:
    apply_rows(table, [(key, 90) for key in range(40)])
    assert len(table.snapshot().files) == 1
    table.maintain()
    assert table.store.list(RUNS_FOLDER) == []
    assert content(table) == [(key, 90) for key in range(40)]


def test_a_merge_in_blocks_is_a_merge(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [keys for e in table.store.list(KEYS_FOLDER) if (keys := read_keys(table.store, e.name))]
    live = frozenset(path for keys in sources[1:] for path in keys.files)
    monkeypatch.setattr(key_merge, "MERGE_BLOCK_ROWS", 50)
    merged = read_keys(table.store, merge_keys(table.store, sources, live))
    assert merged is not None
    assert merged.h1.tolist() == sorted(merged.h1.tolist())
    rows = {
        (merged.files[file], position, version, h2)
        for file, position, version, h2 in zip(
            merged.files_of(np.arange(len(merged))),
            merged.position,
            merged.version,
            merged.h2,
            strict=True,
        )
    }
    assert rows == {
        (keys.files[0], position, version, h2)
        for keys in sources[1:]
        for position, version, h2 in zip(keys.position, keys.version, keys.h2, strict=True)
    }


def test_a_level_that_outgrew_the_limit_is_merged_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "INLINE_MERGE_ROWS", 0)
    table = LakeTable(Store(tmp_path), KEYED)
    for number in range(30):
        apply_rows(table, [(key, 1) for key in range(10 * number, 10 * number + 10)])
    assert table.store.list(RUNS_FOLDER) == []
    KeyIndex(table.store, KEYED.key).tidy(table.snapshot(), most_rows=120)
    runs = [run for entry in table.store.list(RUNS_FOLDER) if (run := read_keys(table.store, entry.name))]
    assert [len(run) for run in runs] == [120, 120]
    apply_rows(LakeTable(Store(tmp_path), KEYED), [(key, 2) for key in range(300)])
    assert content(table) == [(key, 2) for key in range(300)]
