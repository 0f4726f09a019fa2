"""A file appears whole or not at all, whoever else writes the same name."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace.atomic import create_file, replace_file, replacing


def test_a_file_is_replaced_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "name"
    replace_file(path, "first")
    replace_file(path, b"second", durable=True)
    assert path.read_text() == "second"
    assert [one.name for one in path.parent.iterdir()] == ["name"]


def test_a_block_that_raises_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "name"
    replace_file(path, "first")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write(b"half") and file.write(None)  # type: ignore[arg-type]
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_of_one_name_do_not_share_an_unfinished_file(tmp_path: Path) -> None:
    path = tmp_path / "name"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_text() == "first"


def test_of_many_creators_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "name"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: create_file(path, b"%d" % number), range(32)))
    assert won.count(True) == 1
    assert int(path.read_bytes()) == won.index(True)
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_private_from_the_beginning(tmp_path: Path) -> None:
    with replacing(tmp_path / "name", mode=0o600):
        (unfinished,) = tmp_path.iterdir()
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
