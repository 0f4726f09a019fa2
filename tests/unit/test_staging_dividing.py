"""Files of `in` that replicas divide: each file with one of them, about the same amount each, and back again."""

import os
from pathlib import Path

import pytest

from millrace.beneath.folder import Folder
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.staging.dividing import divide, return_claims


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    made = Staging(Home(tmp_path), "acme")
    made.make()
    return made


def put(staging: Staging, **files: int) -> None:
    for name, size in files.items():
        (staging.inbox / name).write_bytes(b"x" * size)


def claimed(staging: Staging, replicas: int) -> list[list[str]]:
    return [sorted(os.listdir(staging.claimed(number))) for number in range(replicas)]


def test_each_file_goes_to_one_replica_and_all_get_about_the_same(staging: Staging) -> None:
    put(staging, a=900, b=500, c=400, d=300, e=300, f=300)
    divide(staging, 3, None)
    shares = claimed(staging, 3)
    assert sorted(name for share in shares for name in share) == list("abcdef")
    sizes = [sum((staging.claimed(n) / name).stat().st_size for name in share) for n, share in enumerate(shares)]
    assert max(sizes) <= 1000
    assert os.listdir(staging.inbox) == []


def test_what_a_replica_leaves_returns_and_replaces_nothing(staging: Staging) -> None:
    put(staging, a=1, b=2)
    divide(staging, 2, None)
    (staging.inbox / "a").write_text("newer")
    return_claims(staging)
    assert (staging.inbox / "a").read_text() == "newer"
    assert sorted(path.stat().st_size for path in staging.inbox.iterdir()) == [1, 2, 5]
    assert os.listdir(staging.claims) == []
    return_claims(staging)


def test_unfinished_uploads_and_links_stay(staging: Staging) -> None:
    put(staging, **{".up.partial": 3, "a.csv": 1})
    (staging.inbox / "link").symlink_to("/etc/passwd")
    (staging.inbox / "table").mkdir()
    (staging.inbox / "table" / "b.csv").write_text("1")
    divide(staging, 2, None)
    assert sorted(os.listdir(staging.inbox)) == [".up.partial", "link"]
    assert sorted(name for share in claimed(staging, 2) for name in share) == ["a.csv", "table"]


def test_claims_of_replicas_that_exist_no_more_are_divided_again(staging: Staging) -> None:
    put(staging, a=1, b=1, c=1, d=1)
    divide(staging, 4, None)
    divide(staging, 2, None)
    assert [len(share) for share in claimed(staging, 2)] == [2, 2]
    assert sorted(os.listdir(staging.claims)) == ["0", "1"]


def test_a_link_in_the_place_of_in_is_not_followed(staging: Staging, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret").write_text("theirs")
    staging.inbox.rmdir()
    staging.inbox.symlink_to(other)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        divide(staging, 2, None)
    assert os.listdir(other) == ["secret"]


def test_what_cannot_be_moved_holds_up_nothing_else(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that nobody may write cannot go to another one."""
    put(staging, a=1, b=1, locked=9, c=1)
    move = Folder.move_to

    def move_others(self: Folder, name: str, folder: Folder, other: str) -> None:
        if name == "locked":
            raise PermissionError(13, "Permission denied", name)
        move(self, name, folder, other)

    with monkeypatch.context() as denied:
        denied.setattr(Folder, "move_to", move_others)
        divide(staging, 2, None)
        assert os.listdir(staging.inbox) == ["locked"]
    divide(staging, 2, None)
    with monkeypatch.context() as denied:
        denied.setattr(Folder, "move_to", move_others)
        [why] = return_claims(staging)
        assert "locked" in why
        assert sorted(os.listdir(staging.inbox)) == ["a", "b", "c"]
    assert return_claims(staging) == []
    assert sorted(os.listdir(staging.inbox)) == ["a", "b", "c", "locked"]
