"""Removed files and superseded deletion vectors stay for as long as readers may need them, and no longer."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from millrace.lake.actions import now_ms
from millrace.lake.log import load
from millrace.lake.schema import TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum
from millrace.sink.delta.upkeep import REMOVED_FILES_KEPT, STAGED_FILES_KEPT
from tests.support.lake import SCHEMA, apply_rows, content, newest, read_by_deltalake, read_by_polars

HOUR = timedelta(hours=1)
KEYS, ROUNDS = 400, 6


def swept(store: Store, monkeypatch: pytest.MonkeyPatch, after: timedelta) -> list[str]:
    """What upkeep deletes so much later."""
    later = now_ms() + after // timedelta(milliseconds=1)
    monkeypatch.setattr("millrace.lake.vacuum.now_ms", lambda: later)
    return vacuum(store, REMOVED_FILES_KEPT, STAGED_FILES_KEPT)


def data_files(store: Store) -> set[str]:
    return {entry.name for entry in store.list("") if entry.name.endswith((".parquet", ".bin"))}


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_what_no_version_of_the_last_7_days_needs_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    assert timedelta(days=7) == REMOVED_FILES_KEPT
    store = Store(tmp_path)
    table, rows, shown = LakeTable(store, TableSpec("t", SCHEMA, ("id",), mode)), [], {}
    for version in range(1, ROUNDS + 1):
        changed = [(key, version) for key in range(0, KEYS, version)]
        apply_rows(table, changed)
        rows += changed
        shown[load(store).version] = newest(rows)
    suffix = ".bin" if mode == "auto" else ".parquet"
    before = data_files(store)
    # The files are old; that nobody needs some of them is new.
    for name in before:
        os.utime(tmp_path / name, (0, 0))
    assert swept(store, monkeypatch, timedelta(0)) == []
    assert swept(store, monkeypatch, REMOVED_FILES_KEPT - HOUR) == []
    assert data_files(store) == before
    for version, expected in shown.items():
        assert content(table, version) == read_by_polars(tmp_path, version) == expected
        assert read_by_deltalake(tmp_path, version) == expected
    deleted = swept(store, monkeypatch, REMOVED_FILES_KEPT + HOUR)
    assert any(name.endswith(suffix) for name in deleted), "each round replaces rows of the files before it"
    snapshot = load(store)
    live = {file.name for file in snapshot.files.values()}
    vectors = {name for name in data_files(store) if name.endswith(".bin")}
    assert {name for name in data_files(store) if name.endswith(".parquet")} == live
    assert len(vectors) == len({(v.location) for f in snapshot.files.values() if (v := f.deletion_vector)})
    assert content(table) == read_by_polars(tmp_path) == read_by_deltalake(tmp_path) == newest(rows)
