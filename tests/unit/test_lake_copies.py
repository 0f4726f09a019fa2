"""Copies of a remote table that a power cut left cut or empty are fetched again."""

from pathlib import Path

import pytest

from millrace.lake.remote import RemoteStore
from millrace.lake.table import LakeTable
from millrace.model.errors import Corrupt
from tests.support.folder_objects import FolderObjects
from tests.support.lake import KEYED, apply_rows, content, stage_mixed


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "bucket")


@pytest.fixture
def copies(tmp_path: Path, objects: FolderObjects) -> Path:
    """Of a table with data files, vectors, key files and tombstones."""
    table = LakeTable(RemoteStore(tmp_path / "copies", objects), KEYED)
    apply_rows(table, [(key, 1) for key in range(0, 2000, 2)])
    apply_rows(table, [(key, 2) for key in range(0, 2000, 3)])
    table.apply([stage_mixed(table.store, [(6, 3, True), (5000, 3, False)])])
    return tmp_path / "copies"


@pytest.mark.parametrize("how", ["empty", "cut", "zeros"])
def test_a_damaged_copy_is_not_believed(objects: FolderObjects, copies: Path, how: str) -> None:
    expected = content(LakeTable(RemoteStore(copies, objects), KEYED))
    assert objects.fetched == []
    kept = [path for path in copies.rglob("*") if path.is_file() and path.suffix in (".parquet", ".bin", ".keys")]
    assert {path.suffix for path in kept} == {".parquet", ".bin", ".keys"}
    for path in kept:
        data = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "zeros": bytes(len(data))}[how])
    table = LakeTable(RemoteStore(copies, objects), KEYED)
    assert content(table) == expected
    apply_rows(table, [(6, 2), (8, 9)])
    model = dict(expected) | {8: 9}
    elsewhere = LakeTable(RemoteStore(copies.parent / "others", objects), KEYED)
    assert content(table) == content(elsewhere) == sorted(model.items())


def test_a_flipped_bit_in_a_copy_of_a_data_file_is_found(objects: FolderObjects, copies: Path) -> None:
    expected = content(LakeTable(RemoteStore(copies, objects), KEYED))
    path = max(copies.glob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[200] ^= 4
    path.write_bytes(data)
    table = LakeTable(RemoteStore(copies, objects), KEYED)
    with pytest.raises(Corrupt, match=f"{path.name} of the Delta table at .* is damaged") as refused:
        content(table)
    assert refused.value.remedy == "The next attempt reads it anew."
    assert content(table) == expected
