"""Deleting a table: also after the deletion was interrupted anywhere, and also what other writers named."""

from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from millrace.lake.log import commit_name
from millrace.lake.removal import delete_table
from millrace.lake.store import Store

VERSIONS = 4


class Killed(BaseException):
    pass


class KilledAt(Store):
    """Deletes some files, then the process dies."""

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(root)
        self._name = name

    def delete(self, name: str) -> None:
        if name == self._name:
            raise Killed
        super().delete(name)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Every commit adds a file in a folder that only the log knows."""
    store = Store(tmp_path)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    for version in range(VERSIONS):
        name = f"day={version} x/part.parquet"
        store.write(name, b"rows")
        add = {"path": quote(name), "partitionValues": {}, "size": 4, "modificationTime": 1, "dataChange": True}
        actions = [{"protocol": protocol}, {"add": add}] if version == 0 else [{"add": add}]
        store.write(commit_name(version), b"\n".join(map(orjson.dumps, actions)))
    store.write("staged.parquet", b"rows")
    return tmp_path


def _left(table: Path) -> list[str]:
    return sorted(str(path.relative_to(table)) for path in table.rglob("*") if path.is_file())


@pytest.mark.parametrize("version", range(VERSIONS))
def test_a_deletion_that_was_killed_in_the_log_can_be_repeated(table: Path, version: int) -> None:
    with pytest.raises(Killed):
        delete_table(KilledAt(table, commit_name(version)))
    assert commit_name(version) in _left(table), "and perhaps others that no thread had begun with"
    assert delete_table(Store(table)) > 0
    assert _left(table) == []
    assert delete_table(Store(table)) == 0


def test_a_table_with_a_damaged_log_is_deleted_with_all_that_can_be_read_in_it(table: Path) -> None:
    (table / commit_name(1)).unlink()
    (table / commit_name(2)).write_bytes(b'{"add": {"path": \xff\n')
    delete_table(Store(table))
    assert _left(table) == ["day=1 x/part.parquet", "day=2 x/part.parquet"], "only the lost entries named them"
