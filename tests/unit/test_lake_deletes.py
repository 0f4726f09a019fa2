"""Deletes: a key is gone from the delete's version on, whatever comes late, twice or through another handle."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.lake import decide
from millrace.lake.read import scan
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedChunk, StagedFile, write_data_file
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.tombstones import TOMBSTONES_FOLDER
from millrace.model.errors import Corrupt, Invalid
from tests.support.lake import (
    KEYED,
    KEYLESS,
    READERS,
    RivalStore,
    apply_rows,
    arrow_rows,
    assert_keys_once_in_every_version,
    content,
    stage,
    stage_mixed,
)

NEVER = replace(KEYED, deletion_vectors="never")
both = pytest.mark.parametrize("spec", [KEYED, NEVER], ids=["auto", "never"])


def apply_deletes(table: LakeTable, *files: list[tuple[int, int]]) -> None:
    table.apply([stage_mixed(table.store, [(key, version, True) for key, version in rows]) for rows in files])


def listed(table: LakeTable) -> tuple[str, ...]:
    return TableState.of(table.snapshot().metadata).tombstones


@both
def test_a_delete_kills_older_rows_and_those_that_come_late(tmp_path: Path, spec: TableSpec) -> None:
    table = LakeTable(Store(tmp_path), spec)
    apply_rows(table, [(1, 5), (2, 5), (3, 9)])
    apply_deletes(table, [(1, 7), (3, 7), (4, 7)])
    assert content(table) == [(2, 5), (3, 9)]
    apply_rows(table, [(1, 6), (4, 6), (2, 6)])
    assert content(table) == [(2, 6), (3, 9)]
    apply_rows(table, [(1, 8), (4, 8)])
    assert content(table) == [(1, 8), (2, 6), (3, 9), (4, 8)]
    assert_keys_once_in_every_version(table)


def test_a_commit_returns_the_snapshot_that_contains_it(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 5), (2, 5), (3, 5)])
    done = table.apply([stage_mixed(table.store, [(1, 7, True), (2, 7, False), (9, 7, True)])])
    assert (done.version, done.live_rows) == (1, 2)
    assert done == table.snapshot()


def test_of_one_chunk_the_last_row_of_a_key_counts_be_it_a_delete_or_not(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    rows = [(1, 5, False), (2, 5, True), (1, 5, True), (2, 5, False), (3, 5, True), (3, 4, False)]
    staged = stage_mixed(table.store, rows)
    assert (staged.rows, staged.deleted_rows) == (1, 2)
    table.apply([staged])
    assert content(table) == [(2, 5)]
    apply_rows(table, [(1, 4), (3, 4)])
    assert content(table) == [(2, 5)]


def test_chunks_are_counted_without_their_deletes(tmp_path: Path) -> None:
    rows = arrow_rows([(1, 5), (2, 5), (1, 6)]).append_column("_deleted", pa.array([False, True, None]))
    chunks = [StagedChunk("a", 0, 2, 5), StagedChunk("b", 2, 1, 6)]
    staged = write_data_file(Store(tmp_path), rows, ("id",), "part", chunks)
    assert [(chunk.first_position, chunk.rows) for chunk in staged.chunks] == [(0, 0), (0, 1)]
    assert StagedFile.from_dict(staged.to_dict()) == staged


def test_only_deletes_stage_no_data_file(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    staged = stage_mixed(table.store, [(1, 5, True), (2, 5, True)])
    assert (staged.path, staged.rows, staged.deleted_rows) == ("", 0, 2)
    table.apply([staged, stage_mixed(table.store, [(3, 5, True)], prefix="other")])
    assert (len(table.snapshot().files), len(listed(table))) == (0, 2)
    assert stage_mixed(table.store, [(1, 5, True), (2, 5, True)]) == staged


def test_a_delete_replayed_changes_nothing_and_commits_nothing(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 5), (2, 5)])
    apply_deletes(table, [(1, 7), (5, 7)])
    apply_rows(table, [(5, 9)])
    version = table.snapshot().version
    other = LakeTable(Store(tmp_path), KEYED)
    apply_deletes(other, [(1, 7), (5, 7)], [(1, 6)], [(5, 8)])
    assert table.snapshot().version == version
    assert content(table) == [(2, 5), (5, 9)]


def test_a_delete_and_a_row_of_one_commit_are_judged_by_version(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    files = [[(1, 9, True), (2, 3, True), (3, 5, False)], [(1, 3, False), (2, 9, False), (3, 6, True)]]
    table.apply([stage_mixed(table.store, rows) for rows in files])
    assert content(table) == [(2, 9)]
    apply_rows(table, [(3, 5), (1, 8)])
    assert content(table) == [(2, 9)]


@both
def test_a_delete_that_is_overtaken_plans_again(tmp_path: Path, spec: TableSpec) -> None:
    rival = LakeTable(Store(tmp_path), spec)
    rivals = [lambda: apply_rows(rival, [(1, 5), (2, 9)]), lambda: apply_deletes(rival, [(3, 9)])]
    table = LakeTable(RivalStore(tmp_path, rivals), spec)
    rows = [(1, 7, True), (2, 7, True), (3, 7, False), (4, 7, False)]
    assert table.apply([stage_mixed(table.store, rows)]).version == 2, "both rivals came first"
    assert content(table) == [(2, 9), (4, 7)]
    assert len(listed(table)) == 2


def test_a_large_commit_is_decided_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "BLOCK_ROWS", 40)
    table, model = LakeTable(Store(tmp_path), KEYED), {}
    for turn in range(4):
        rows = [(key % 150, 10 * turn + key // 100, key % 7 == turn) for key in range(300)]
        table.apply([stage_mixed(table.store, rows[start::3]) for start in range(3)])
        for key, version, deletes in sorted(rows, key=lambda row: row[1]):
            model[key] = (version, deletes)
    assert content(table) == sorted((key, version) for key, (version, deletes) in model.items() if not deletes)


def test_a_lost_tombstone_file_stops_the_table_instead_of_reviving_rows(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_deletes(table, [(1, 7)])
    for entry in table.store.list(TOMBSTONES_FOLDER):
        table.store.delete(entry.name)
    with pytest.raises(Corrupt, match="tombstone"):
        apply_rows(LakeTable(Store(tmp_path), KEYED), [(1, 5)])


def test_a_table_without_a_key_refuses_deletes(tmp_path: Path) -> None:
    store = LakeTable(Store(tmp_path), KEYLESS).store
    rows = arrow_rows([(1, 1)])
    with pytest.raises(Invalid, match="delete"):
        write_data_file(store, rows.append_column("_deleted", pa.array([True])), (), "part")
    staged = write_data_file(store, rows.append_column("_deleted", pa.array([False])), (), "part")
    assert staged == write_data_file(store, rows, (), "part")


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_sees_a_deleted_row_in_any_version(tmp_path: Path, reader) -> None:  # type: ignore[no-untyped-def]
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(key, 1) for key in range(3000)])
    apply_deletes(table, [(key, 2) for key in range(0, 3000, 3)])
    apply_rows(table, [(key, 3) for key in range(100)])
    table.apply([stage_mixed(table.store, [(key, 4, key % 2 == 0) for key in range(0, 3000, 5)])], floor=1)
    table.maintain()
    for version in range(table.snapshot().version + 1):
        assert reader(tmp_path, version) == content(table, version)
    assert content(table) == sorted(
        [(key, 3) for key in range(100) if key % 5] + [(key, 4) for key in range(0, 3000, 5) if key % 2]
    )
    assert "_deleted" not in scan(table.store, table.snapshot()).column_names


def test_rows_are_staged_as_before_where_nothing_is_deleted(tmp_path: Path) -> None:
    store = LakeTable(Store(tmp_path), KEYED).store
    assert stage_mixed(store, [(1, 1, False), (2, 1, False)]) == stage(store, [(1, 1), (2, 1)])
