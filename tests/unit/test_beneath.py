"""Folders of other people's programs: what is reached through a handle, and that no link leads out of it."""

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.beneath import opening
from millrace.beneath.folder import Folder, enter, hold
from millrace.beneath.trees import clear, remove, size

DEEP = 1500


@pytest.fixture(params=["openat2", "by parts"])
def folder(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """With `out/t/a.csv` in it, `away` beside it, and links to that."""
    if request.param == "by parts":
        monkeypatch.setattr(opening, "_knows_openat2", lambda: False)
    (tmp_path / "own" / "out" / "t").mkdir(parents=True)
    (tmp_path / "own" / "out" / "t" / "a.csv").write_text("mine")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "a.csv").write_text("theirs")
    (tmp_path / "own" / "link").symlink_to(tmp_path / "away")
    (tmp_path / "own" / "out" / "file").symlink_to(tmp_path / "away" / "a.csv")
    with hold(tmp_path / "own") as held:
        yield held


@pytest.mark.parametrize("path", ["link", "link/deeper", "out/file", "..", "out/../link", "/etc", "out//t", "."])
def test_no_way_leads_out(folder: Folder, path: str) -> None:
    with pytest.raises(OSError) as refused, folder.folder(path):
        pass
    assert refused.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL)


def test_a_link_in_the_place_of_a_folder_is_not_entered(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        enter(tmp_path / "own" / "link")
    with folder.make("link", 0o700) as made:
        assert made.entries() == []
    assert [name for name, _ in folder.entries()] == ["link", "out"]
    assert (tmp_path / "away" / "a.csv").read_text() == "theirs"


def test_files_are_moved_measured_and_made_without_following(folder: Folder, tmp_path: Path) -> None:
    assert size(folder) == 4
    with pytest.raises(OSError):
        folder.move_out("link/a.csv", tmp_path / "stolen")
    with folder.folder("out") as out:
        with pytest.raises(FileExistsError):
            out.create("file")
        with pytest.raises(FileExistsError):
            out.rename_new("t", "file")
        out.move_out("file", tmp_path / "moved")
    assert (tmp_path / "moved").is_symlink()
    folder.move_out("out/t/a.csv", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_what_is_old_goes_and_nothing_behind_a_link(folder: Folder, tmp_path: Path) -> None:
    os.utime(tmp_path / "away" / "a.csv", (1, 1))
    os.utime(tmp_path / "own" / "out" / "t" / "a.csv", (1, 1))
    assert clear(folder, before=2) == 1
    assert (tmp_path / "away" / "a.csv").exists()


def test_any_tree_can_be_removed(folder: Folder, tmp_path: Path) -> None:
    """Also one that is deeper than any path and stack, and closed to its owner."""
    inner = os.open(tmp_path / "own" / "out", os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=inner)
        outer, inner = inner, os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    (tmp_path / "own" / "out" / "t").chmod(0)
    remove(folder, "out")
    remove(folder, "link")
    assert folder.entries() == []
    assert (tmp_path / "away" / "a.csv").read_text() == "theirs"


def test_a_full_folder_costs_no_more_memory_than_what_is_asked_of_it(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / f".hidden-{number:05}-{'x' * 150}").touch()
        (tmp_path / f"{number:05}-{'x' * 150}").touch()
    with enter(tmp_path) as folder:
        tracemalloc.start()
        try:
            found = folder.first(3, lambda name: not name.startswith("."))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert [name[:5] for name, _ in found] == ["00000", "00001", "00002"]
    assert peak < 200_000
