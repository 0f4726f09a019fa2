"""What a table remembers stays small: after thousands of small commits there are few files of every kind, and purged
tombstones and chunk ids let nothing back in."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from millrace.lake import checkpointing, compact
from millrace.lake.checkpointing import CHECKPOINT_INTERVAL
from millrace.lake.compact import MOST_SMALL_FILES
from millrace.lake.key_merge import FAN_IN
from millrace.lake.keys import RUNS_FOLDER
from millrace.lake.log import load
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.tombstones import TOMBSTONES_FOLDER, Tombstones
from millrace.lake.vacuum import vacuum
from millrace.sink.delta.upkeep import COMMITS
from tests.support.lake import (
    KEYED,
    KEYLESS,
    RivalStore,
    apply_rows,
    content,
    read_by_polars,
    stage_chunks,
    stage_mixed,
)
from tests.support.revisions import ID, Revisions, rows_of, write_under

NOW = timedelta(0)


def delete(table: LakeTable, version: int, keys: Sequence[int]) -> None:
    table.apply([stage_mixed(table.store, [(key, version, True) for key in keys])])


def listed(table: LakeTable) -> tuple[str, ...]:
    return TableState.of(table.snapshot().metadata).tombstones


def buried(table: LakeTable) -> dict[int, int]:
    """How many tombstones there are of each version."""
    versions = [int(v) for keys in Tombstones(table.store).read(listed(table)) for v in keys.version]
    return {version: versions.count(version) for version in sorted(set(versions))}


def test_an_hour_of_small_appends_and_deletes_leaves_little_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most_versions = 100
    monkeypatch.setattr(checkpointing, "MOST_VERSIONS", most_versions)
    monkeypatch.setattr(checkpointing, "LEAST_RETENTION", NOW)
    table, model = LakeTable(Store(tmp_path), KEYED), {}
    for version in range(1, 2001):
        key = version * 7919 % 700
        if version % 3:
            apply_rows(table, [(key, version), (version + 10_000, version)])
            model |= {key: version, version + 10_000: version}
        else:
            delete(table, version, [key, version + 9_998])
            for gone in (key, version + 9_998):
                model.pop(gone, None)
        if version % COMMITS == 0:
            LakeTable(Store(tmp_path), KEYED).maintain(safe_version=version - 500)
        if version % 400 == 0:
            vacuum(table.store, NOW, NOW)
    assert content(table) == read_by_polars(tmp_path) == sorted(model.items())
    assert len(table.snapshot().files) <= MOST_SMALL_FILES + COMMITS
    assert len(listed(table)) <= 2 * FAN_IN
    assert sum(buried(table).values()) <= 2 * 500
    names = os.listdir(tmp_path / "_delta_log")
    commits, checkpoints = (sum(name.endswith(end) for name in names) for end in (".json", ".checkpoint.parquet"))
    assert commits <= most_versions + 2 * CHECKPOINT_INTERVAL
    assert checkpoints <= commits / CHECKPOINT_INTERVAL + 1
    assert len(table.store.list(RUNS_FOLDER)) <= 2 * FAN_IN
    assert len(table.store.list("")) + len(table.store.list(TOMBSTONES_FOLDER)) <= 2 * (MOST_SMALL_FILES + COMMITS)


def test_many_deletes_are_merged_on_the_way(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    for version in range(1, 101):
        delete(table, version, [version % 50, 1000 + version])
    assert len(listed(table)) < FAN_IN
    assert sum(buried(table).values()) <= 150 + FAN_IN, "of a key deleted twice the last delete counts"
    apply_rows(LakeTable(Store(tmp_path), KEYED), [(key, 49) for key in range(50)], [(1100, 99), (1001, 2)])
    assert content(table) == [(1001, 2)]


def test_a_merge_keeps_the_tombstones_of_rows_that_die_with_it(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 5) for key in range(3 * FAN_IN)])
    for key in range(3 * FAN_IN):
        delete(table, 10 + key, [key])
    apply_rows(table, [(key, 6) for key in range(3 * FAN_IN)])
    assert content(table) == []


def test_tombstones_of_keys_that_live_again_are_dropped(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    for version in range(1, FAN_IN):
        delete(table, version, [version, 100 + version])
    apply_rows(table, [(key, 50) for key in range(1, FAN_IN)])
    delete(table, 60, [200])
    assert buried(table) == {**dict.fromkeys(range(1, FAN_IN), 1), 60: 1}
    apply_rows(LakeTable(Store(tmp_path), KEYED), [(key, 0) for key in range(1, 300)])
    expected = {(key, 50) for key in range(1, FAN_IN)}
    gone = {100 + version for version in range(1, FAN_IN)} | {200}
    expected |= {(key, 0) for key in range(FAN_IN, 300) if key not in gone}
    assert content(table) == sorted(expected)


def test_purging_raises_the_floor_to_what_was_purged(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(7, 1)])
    delete(table, 3, [1])
    delete(table, 5, [2])
    delete(table, 9, [3])
    table.maintain(safe_version=2)
    assert buried(table) == {3: 1, 5: 1, 9: 1}
    table.maintain(safe_version=7)
    state = TableState.of(table.snapshot().metadata)
    assert (state.floor, buried(table)) == (5, {9: 1})
    apply_rows(table, [(1, 2), (2, 4), (3, 8), (4, 5), (5, 6), (7, 4)])
    assert content(table) == [(5, 6), (7, 1)]


def test_tombstones_below_a_truncation_go(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    delete(table, 3, [1])
    table.apply([], floor=5)
    table.maintain()
    assert listed(table) == ()
    vacuum(table.store, NOW, NOW)
    assert table.store.list(TOMBSTONES_FOLDER) == []
    apply_rows(table, [(1, 2), (2, 6)])
    assert content(table) == [(2, 6)]


def test_a_purge_that_is_overtaken_keeps_the_new_tombstones(tmp_path: Path) -> None:
    rival = LakeTable(Store(tmp_path), KEYED)
    delete(rival, 3, [1])
    apply_rows(rival, [(2, 4)])
    store = RivalStore(tmp_path, [lambda: delete(rival, 6, [2]), lambda: rival.maintain(safe_version=3)])
    compact.purge(store, KEYED, safe_version=4)
    assert buried(rival) == {6: 1}
    apply_rows(rival, [(1, 2), (2, 5)])
    assert content(rival) == []


def test_a_writer_that_missed_a_merge_still_finds_its_files(tmp_path: Path) -> None:
    stale = LakeTable(Store(tmp_path), KEYED)
    delete(stale, 3, [1])
    stale.snapshot()
    other = LakeTable(Store(tmp_path), KEYED)
    for version in range(4, 4 + FAN_IN):
        delete(other, version, [version])
    vacuum(Store(tmp_path), timedelta(hours=1), NOW)
    apply_rows(stale, [(1, 2), (50, 2)])
    assert content(stale) == [(50, 2)]


def test_chunk_ids_are_forgotten_below_the_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "MOST_CHUNK_IDS", 10)
    revisions = Revisions(key=())
    first = revisions.add(ID)
    table = revisions.open(tmp_path)
    for version in range(1, 31):
        write_under(table, first, version, {"id": version})
    table.maintain(safe_version=20)
    for version in range(31, 31 + CHECKPOINT_INTERVAL):
        write_under(table, first, version, {"id": version})
    assert min(known.version for known in load(table.store).transactions.values()) == 21
    for version in range(1, 31):
        write_under(revisions.open(tmp_path), first, version, {"id": version})
    assert [row["id"] for row in rows_of(table)] == list(range(1, 31 + CHECKPOINT_INTERVAL))


def test_a_table_that_knows_no_definitions_forgets_no_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "MOST_CHUNK_IDS", 1)
    table = LakeTable(Store(tmp_path), KEYLESS)
    table.apply([stage_chunks(table.store, {f"chunk {n}": [(n, n)] for n in range(5)})])
    version = table.snapshot().version
    table.maintain(safe_version=100)
    assert table.snapshot().version == version
    table.apply([stage_chunks(table.store, {"replayed": [(9, 0)]}, "late")])
    assert (9, 0) in content(table)
