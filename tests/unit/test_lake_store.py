"""Files appear whole or not at all, and only one of many writers gets a name."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace.lake.store import TEMPORARY_FOLDER, Store


def test_exactly_one_of_many_writers_gets_the_name(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: store.put_if_absent("log/1", b"%d" % n), range(40)))
    assert won.count(True) == 1
    assert store.read("log/1") == b"%d" % won.index(True)


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("kept", b"old")

    def write_half() -> None:
        with store.creating("kept") as file:
            file.write(b"new, but only a pa")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_half()
    assert store.read("kept") == b"old"
    assert store.list(TEMPORARY_FOLDER) == []


def test_a_mapping_outlives_its_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("large", b"x" * 1_000_000)
    content = store.map("large")
    store.delete("large")
    assert bytes(content[-3:]) == b"xxx"
    assert not store.exists("large")
    store.delete("large")


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/passwd/../../out/../../.."])
def test_names_that_leave_the_root_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="leaves the table folder"):
        Store(tmp_path).write(name, b"")


def test_a_missing_folder_lists_as_empty(tmp_path: Path) -> None:
    assert Store(tmp_path / "nowhere").list("log") == []
