"""Truncation: rows up to a version go in one commit, later writes at or below it are beaten, newer ones stay."""

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.lake.read import live_files
from millrace.lake.schema import TableSpec
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.lake import (
    KEYED,
    KEYLESS,
    RivalStore,
    apply_rows,
    content,
    read_by_deltalake,
    read_by_polars,
    stage,
    stage_chunks,
    stage_mixed,
)

NEVER = replace(KEYED, deletion_vectors="never")
both = pytest.mark.parametrize("spec", [KEYED, NEVER], ids=["auto", "never"])


@both
def test_rows_up_to_the_floor_go_and_newer_ones_stay(tmp_path: Path, spec: TableSpec) -> None:
    table = LakeTable(Store(tmp_path), spec)
    apply_rows(table, [(1, 3), (2, 5), (3, 9)], [(4, 2), (5, 4)], [(6, 8), (7, 9)])
    version = table.snapshot().version
    assert table.apply([], floor=5).version == version + 1
    assert content(table) == read_by_polars(tmp_path) == read_by_deltalake(tmp_path) == [(3, 9), (6, 8), (7, 9)]
    assert len(table.snapshot().files) == 2, "a file of which nothing is left is gone"


@both
def test_later_writes_at_or_below_the_floor_are_beaten(tmp_path: Path, spec: TableSpec) -> None:
    table = LakeTable(Store(tmp_path), spec)
    apply_rows(table, [(1, 3)])
    table.apply([], floor=5)
    version = table.snapshot().version
    other = LakeTable(Store(tmp_path), spec)
    assert other.apply([stage(other.store, [(1, 5), (2, 4)])]).version == version
    assert other.apply([stage_mixed(other.store, [(1, 5, True)])]).version == version, "a beaten delete is no change"
    apply_rows(other, [(1, 6), (2, 5), (3, 7)])
    assert content(table) == [(1, 6), (3, 7)]
    assert TableState.of(table.snapshot().metadata).floor == 5


def test_truncating_again_or_lower_changes_nothing(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 3), (2, 7)])
    version = table.apply([], floor=5).version
    assert table.apply([], floor=5).version == version
    assert table.apply([], floor=4).version == version
    assert content(table) == [(2, 7)]


def test_one_commit_truncates_and_brings_newer_rows(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 3), (2, 7), (3, 3)])
    version = table.snapshot().version
    files = [stage(table.store, [(1, 6), (2, 6)]), stage(table.store, [(4, 4), (3, 5)])]
    assert table.apply(files, floor=5).version == version + 1
    assert content(table) == [(1, 6), (2, 7)]


def test_rows_already_dead_are_not_counted_twice(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    apply_rows(table, [(1, 3), (2, 3), (3, 8)])
    apply_rows(table, [(1, 9), (2, 9)])
    table.apply([], floor=5)
    assert content(table) == [(1, 9), (2, 9), (3, 8)]
    assert [file.dead.tolist() for file in live_files(table.store, table.snapshot()) if file.dead is not None] == [
        [0, 1]
    ]


def test_the_floor_of_a_table_that_does_not_exist_yet(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYED)
    table.apply([], floor=5)
    apply_rows(table, [(1, 5), (2, 6)])
    assert content(table) == [(2, 6)]


def test_a_truncation_that_is_overtaken_sees_the_rival_rows(tmp_path: Path) -> None:
    rival = LakeTable(Store(tmp_path), KEYED)
    apply_rows(rival, [(1, 3)])
    table = LakeTable(RivalStore(tmp_path, [lambda: apply_rows(rival, [(2, 4), (3, 6)])]), KEYED)
    assert table.apply([], floor=5).version == 2, "the rival came first"
    assert content(table) == [(3, 6)]


def test_chunks_without_key_at_or_below_the_floor_are_dropped(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    table.apply([stage_chunks(table.store, {"a": [(1, 0)], "b": [(2, 1)], "c": [(3, 2)]})])
    table.apply([], floor=1)
    assert content(table) == read_by_polars(tmp_path) == [(3, 2)]
    late = stage_chunks(table.store, {"late": [(4, 0)], "late too": [(5, 1)], "new": [(6, 2)]}, "late")
    table.apply([late])
    assert content(table) == [(3, 2), (6, 2)]
    version = table.apply([stage_chunks(table.store, {"later": [(7, 0)]}, "later")]).version
    assert version == table.snapshot().version == 2
