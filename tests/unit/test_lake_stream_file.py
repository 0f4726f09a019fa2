"""A data file written batch after batch holds every row; of a key that comes twice it says which row loses."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.lake import stream_file
from millrace.lake.compact import MOST_SMALL_FILES, plan, run
from millrace.lake.key_format import read_keys
from millrace.lake.store import Store
from millrace.lake.stream_file import stream_data_file
from millrace.lake.table import LakeTable
from tests.support.lake import KEYED, RivalStore, apply_rows, arrow_rows, content, newest, read_by_polars


def test_a_key_that_comes_twice_loses_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_file, "ROW_GROUP_ROWS", 3)
    store, batches = Store(tmp_path), [arrow_rows([(key, 1), (key + 10, 2)]) for key in (0, 5, 10)]
    staged, beaten = stream_data_file(store, batches[0].schema, batches, ("id",), "part")
    assert (staged.rows, staged.size) == (6, store.size(staged.path))
    rows = pq.read_table(store.path(staged.path))
    assert rows["id"].to_pylist() == [0, 10, 5, 15, 10, 20]
    assert beaten.tolist() == [4], "10 came at version 2 before it came at version 1"
    keys = read_keys(store, staged.sidecar or "")
    assert keys is not None
    assert keys.files == (staged.path,)
    assert sorted(keys.position.tolist()) == [0, 1, 2, 3, 4, 5], "the losing row is in the file"


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    store, schema = Store(tmp_path), arrow_rows([]).schema
    staged, beaten = stream_data_file(store, schema, [], ("id",), "part")
    assert (staged.rows, len(beaten)) == (0, 0)
    assert pq.read_table(store.path(staged.path)).num_rows == 0


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = arrow_rows([(1, 1)])

    def breaking() -> Iterator[pa.Table]:
        yield rows
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        stream_data_file(store, rows.schema, breaking(), ("id",), "part")
    assert [entry for entry in store.list("") if entry.name.endswith(".parquet")] == []


def test_compaction_writes_row_group_after_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_file, "ROW_GROUP_ROWS", 40)
    table = LakeTable(Store(tmp_path), KEYED)
    for version in range(MOST_SMALL_FILES + 1):
        apply_rows(table, [(10 * version + n, version) for n in range(12)])
    before, updates = content(table), [(key, 99) for key in range(3, 500, 11)]
    (rewrite,) = plan(table.snapshot())
    store = RivalStore(tmp_path, [lambda: apply_rows(table, updates)])
    assert run(store, KEYED, rewrite) == table.snapshot().version
    (file,) = [file for file in table.snapshot().files.values() if file.name.startswith("compacted")]
    assert pq.read_metadata(store.path(file.name)).num_row_groups > len(before) / 60
    assert content(table) == read_by_polars(tmp_path) == newest([*before, *updates])
    apply_rows(table, [(key, 100) for key, _ in before])
    assert content(table) == [(key, 100) for key, _ in before]
