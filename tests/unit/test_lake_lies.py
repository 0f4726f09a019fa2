"""Data files that are not what the log says: the table is refused in words that name the file. No row is lost, and it is the
table's own trouble, whatever the file makes a library say."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from millrace.lake.bounds import LogBounds
from millrace.lake.deletion_vectors import store_vectors
from millrace.lake.log import load
from millrace.lake.read import live_files
from millrace.lake.removal import delete_table
from millrace.lake.schema import TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.errors import Corrupt, MillraceError, Unavailable
from millrace.model.sinks import Fault
from millrace.sink.delta.faults import table_failure
from tests.support.foreign import commit, file_of
from tests.support.lake import KEYED, KEYLESS, SCHEMA, apply_rows, arrow_rows, content, stage, stage_chunks

NEVER = TableSpec("keyed", SCHEMA, key=("id",), deletion_vectors="never")
MODES = pytest.mark.parametrize("spec", [KEYED, NEVER], ids=["vectors", "never"])


class BoundedStore(Store):
    """Decodes data files in bounded processes, as for tables in a tenant's own bucket."""

    bounds = LogBounds(rows_apart=True)


def a_table(root: Path, spec: TableSpec = KEYED, **lies: Any) -> LakeTable:
    """With a file of another engine that has the keys 5 to 7."""
    table = LakeTable(Store(root), spec)
    apply_rows(table, [(1, 1)])
    added = file_of(root, arrow_rows([(5, 1), (6, 1), (7, 1)]), name="theirs.parquet")
    added["add"].update(lies)
    commit(root, added)
    return table


def refusal(table: LakeTable) -> MillraceError:
    before = load(table.store).version
    with pytest.raises(MillraceError) as refused:
        apply_rows(table, [(5, 2), (9, 2)])
    assert load(table.store).version == before
    assert "theirs.parquet" in refused.value.message
    assert str(table.store.root) in refused.value.message
    assert refused.value.remedy
    return refused.value


@MODES
@pytest.mark.parametrize("rows", [0, 1, 4, (1 << 63) - 1])
def test_a_file_with_other_rows_than_the_log_says(tmp_path: Path, spec: TableSpec, rows: int) -> None:
    refused = refusal(a_table(tmp_path, spec, stats=f'{{"numRecords":{rows}}}'))
    assert f"has 3 rows, and the log says {rows}" in refused.message


def test_the_same_where_files_are_decoded_in_bounded_processes(tmp_path: Path) -> None:
    a_table(tmp_path, stats='{"numRecords":1}')
    assert "has 3 rows, and the log says 1" in refusal(LakeTable(BoundedStore(tmp_path), KEYED)).message


def test_a_truncation_drops_no_file_that_has_more_rows_than_the_log_says(tmp_path: Path) -> None:
    table = LakeTable(Store(tmp_path), KEYLESS)
    table.apply([stage_chunks(table.store, {"i/0": [(1, 1)]})])
    added = file_of(tmp_path, arrow_rows([(5, 1), (6, 9)]), name="theirs.parquet")
    commit(tmp_path, {"add": {**added["add"], "stats": '{"numRecords":1}'}})
    with pytest.raises(Corrupt, match=r"theirs\.parquet .* has 2 rows, and the log says 1"):
        table.apply([], floor=5)


@MODES
def test_a_deletion_vector_that_marks_rows_behind_the_last_one(tmp_path: Path, spec: TableSpec) -> None:
    """With a row of its own that is replaced, so many rows are marked as the file has."""
    vector = store_vectors(Store(tmp_path), {"a": BitMap([1, 50])})["a"]
    table = a_table(tmp_path, spec, deletionVector=vector.to_json())
    assert "marks row 50, and it has 3 rows" in refusal(table).message
    with pytest.raises(Corrupt, match="marks row 50"):
        content(table)


def with_row_count(path: Path, rows: int) -> None:
    """The footer says everywhere that there are so many rows instead of three."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = data[-8 - length : -8].replace(b"\x16\x06", b"\x16" + _varint(2 * rows))
    path.write_bytes(data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


@MODES
@pytest.mark.parametrize("rows", [2, 1 << 30, 1 << 55])
def test_a_footer_that_lies_is_the_trouble_of_its_table_alone(tmp_path: Path, spec: TableSpec, rows: int) -> None:
    table = a_table(tmp_path, spec)
    with_row_count(tmp_path / "theirs.parquet", rows)
    failed = table_failure(refusal(table), tmp_path, lambda _: True)
    assert failed is not None
    assert failed.fault is Fault.TABLE


def test_too_little_memory_for_one_file_is_the_trouble_of_its_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 72057594037927936 failed")

    table = a_table(tmp_path)
    monkeypatch.setattr("millrace.lake.row_keys.group_batches", fail)
    assert "takes more memory to decode than there is" in refusal(table).message


@MODES
@pytest.mark.parametrize("data", [b"", b"PAR1", b"no Parquet file at all", b"PAR1" + b"\0" * 90 + b"PAR1"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, spec: TableSpec, data: bytes) -> None:
    table = a_table(tmp_path, spec)
    (tmp_path / "theirs.parquet").write_bytes(data)
    assert "is damaged" in refusal(table).message


def _linked(root: Path, outside: Path) -> str:
    (root / "link.parquet").symlink_to(outside / "theirs.parquet")
    return "link.parquet"


def _in_linked_folder(root: Path, outside: Path) -> str:
    (root / "folder").symlink_to(outside)
    return "folder/theirs.parquet"


def _pipe(root: Path, outside: Path) -> str:
    os.mkfifo(root / "pipe.parquet")
    return "pipe.parquet"


@pytest.mark.parametrize("make", [_linked, _in_linked_folder, _pipe], ids=["link", "folder", "pipe"])
def test_links_out_of_the_folder_and_devices_are_neither_read_nor_followed(tmp_path: Path, make: Any) -> None:
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    table = LakeTable(Store(root), KEYED)
    apply_rows(table, [(1, 1)])
    added = file_of(outside, arrow_rows([(5, 1)]), name="theirs.parquet")
    path = make(root, outside)
    commit(root, {"add": {**added["add"], "path": path}})
    with pytest.raises(Unavailable, match=rf"{path} .* is no file of the table's folder"):
        apply_rows(table, [(5, 2)])
    with pytest.raises(Unavailable, match="is no file of the table's folder"):
        live_files(table.store, load(table.store))
    assert delete_table(table.store)
    assert not load(table.store).files
    assert (outside / "theirs.parquet").exists()


def test_a_log_entry_that_is_a_device_is_not_read(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.snapshot()
    (tmp_path / "_delta_log" / f"{2:020}.json").symlink_to("/dev/zero")
    for opened in (table, LakeTable(Store(tmp_path), KEYED)):
        with pytest.raises(Unavailable, match="is no file of the table's folder"):
            apply_rows(opened, [(5, 2)])


@pytest.mark.parametrize("path", ["../other/x.parquet", "%2e%2e/other/x.parquet", "", ".", "./x", "a//x", "%2Fetc/x"])
def test_a_path_that_is_no_plain_name_is_refused_and_its_table_can_be_deleted(tmp_path: Path, path: str) -> None:
    root, other = tmp_path / "t", tmp_path / "other"
    other.mkdir()
    (other / "x.parquet").write_text("kept")
    table = LakeTable(Store(root), KEYED)
    apply_rows(table, [(1, 1)])
    added = file_of(root, arrow_rows([(5, 1)]), name="sub/theirs.parquet")
    commit(root, {"add": {**added["add"], "path": path}}, added)
    with pytest.raises(Corrupt, match="no plain name"):
        table.snapshot()
    assert delete_table(table.store)
    assert not any(found.is_file() for found in root.rglob("*"))
    assert (other / "x.parquet").exists()


def test_a_shallow_clone_can_be_deleted(tmp_path: Path) -> None:
    root, other = tmp_path / "t", tmp_path / "other"
    other.mkdir()
    table = LakeTable(Store(root), KEYED)
    apply_rows(table, [(1, 1)])
    added = file_of(other, arrow_rows([(5, 1)]), name="x.parquet")
    commit(root, {"add": {**added["add"], "path": str(other / "x.parquet")}})
    assert delete_table(table.store)
    assert not any(found.is_file() for found in root.rglob("*"))
    assert (other / "x.parquet").exists()


@MODES
def test_a_file_that_is_gone_gets_a_remedy_that_fits(tmp_path: Path, spec: TableSpec) -> None:
    table = a_table(tmp_path, spec)
    (tmp_path / "theirs.parquet").unlink()
    with pytest.raises(FileNotFoundError) as gone:
        apply_rows(table, [(5, 2)])
    failed = table_failure(gone.value, tmp_path, lambda _: True)
    assert failed is not None
    assert "theirs.parquet" in str(failed)
    assert "from a copy" in str(failed)


def test_a_long_value_that_all_rows_repeat_is_never_whole_in_memory(tmp_path: Path) -> None:
    """40,000 rows of 2,500 characters, in one row group of a file of some kilobytes."""
    spec = TableSpec("t", pa.schema([("id", pa.int64()), ("text", pa.string())]), ("text",), "never")
    table = LakeTable(Store(tmp_path), spec)
    apply_rows(table, [(1, 1)])
    rows = 40_000
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * 2500])
    own = {"_version": pa.array(np.ones(rows, np.int64)), "_import": pa.nulls(rows, pa.string())}
    commit(tmp_path, file_of(tmp_path, pa.table({"id": pa.array(np.arange(rows)), "text": repeated, **own})))
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), []
    sampled = pq.ParquetFile.iter_batches

    def watched(*args: Any, **options: Any) -> Any:
        for batch in sampled(*args, **options):
            most.append(pool.bytes_allocated() - before)
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", watched)
        table.apply([stage(table.store, [(2, 2)], spec.key)])
    assert most
    assert max(most) < 70 << 20
