"""The soak's broken tables and hostile tenant: damage is repaired to the byte, links lead nobody astray, leaks are found."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from checker import breaker
from checker.board import Board, Lines
from checker.breaker import Breaker
from checker.breaking import WAYS
from checker.dump import read_lines
from checker.hostile.places import changed, leaks, looks, plant
from checker.listening import Readings
from checker.platform import Platform
from checker.tables import Table
from tests.support.waiting import wait_until

CANARIES = {"soak-a": "canary-of-a", "soak-b": "canary-of-b"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    root = tmp_path / "lake" / "soak-a" / "orders"
    frame = pl.DataFrame({"k": [1], "_version": [1], "_import": ["imp_1"], "_row": [1]})
    frame.write_delta(str(root))
    (root / "_millrace" / "keys").mkdir(parents=True)
    (root / "_millrace" / "keys" / "1.keys").write_bytes(b"keys")
    return root


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_table_is_mended_to_the_byte(table: Path, way: str) -> None:
    before = content(table.parent)
    repair = WAYS[way](table)
    assert content(table.parent) != before
    repair()
    assert content(table.parent) == before


def test_what_the_platform_adds_to_a_damaged_table_stays(table: Path) -> None:
    repair = WAYS["lost files"](table)
    (table / "staged.parquet").write_bytes(b"rows")
    repair()
    assert (table / "staged.parquet").read_bytes() == b"rows"
    assert pl.read_delta(str(table)).height == 1


def test_a_broken_table_is_read_when_it_is_mended(tmp_path: Path, table: Path) -> None:
    board = Board()
    readings = Readings(tmp_path / "lake", set(), tmp_path / "dump", board)
    board.broken.add(("soak-a", "orders"))
    repair = WAYS["garbage entry"](table)
    readings.want(("soak-a", "orders"), "imp_1")
    stopping = threading.Event()
    stopping.set()
    reader = threading.Thread(target=readings.read_wanted, args=(stopping,), daemon=True)
    reader.start()
    reader.join(0.5)
    assert reader.is_alive()
    repair()
    board.broken.clear()
    reader.join(10)
    assert not reader.is_alive()
    assert '"error"' not in (tmp_path / "dump" / "snapshots.jsonl").read_text()


def test_any_change_of_a_planted_file_or_its_folder_is_seen(tmp_path: Path) -> None:
    planted = plant(tmp_path, CANARIES)
    before = looks(tmp_path, planted)
    assert changed(before, looks(tmp_path, planted)) == []
    planted[1].chmod(0o600)
    planted[2].write_text("other")
    planted[3].unlink()
    (planted[4].parent / "more").touch()
    seen = changed(before, looks(tmp_path, planted))
    assert {str(planted[1]), str(planted[2]), str(planted[3]), str(planted[4].parent)} <= set(seen)


def test_leaks_are_found_by_name_and_by_content_and_no_link_is_followed(tmp_path: Path) -> None:
    planted = plant(tmp_path, CANARIES)
    own = tmp_path / "sources" / "hostile" / "out"
    own.mkdir(parents=True)
    (own / "link.csv").symlink_to(planted[0])
    (own / "folder").symlink_to(planted[1].parent)
    os.mkfifo(own / "pipe.csv")
    (own / "own.csv").write_text("k,w\n1,own\n")
    assert leaks(tmp_path, "hostile", CANARIES.values()) == []
    done = tmp_path / "handled" / "hostile" / "done"
    done.mkdir(parents=True)
    (done / "taken.csv").write_bytes(planted[1].read_bytes())
    (done / "canary-of-b.csv").touch()
    found = leaks(tmp_path, "hostile", CANARIES.values())
    assert found == ["handled/hostile/done/canary-of-b.csv", "handled/hostile/done/taken.csv"]


def test_the_attacker_changes_nothing_elsewhere_and_leaves_its_folders_as_they_were(tmp_path: Path) -> None:
    planted = plant(tmp_path, CANARIES)
    own = tmp_path / "sources" / "hostile"
    for name in ("in", "out", "log"):
        (own / name).mkdir(parents=True)
        (own / name / "1.csv").write_text("k,w\n")
    before, mine = looks(tmp_path, planted), content(own)
    targets = [str(path.parent) for path in planted[1:]]
    argv = [sys.executable, "-m", "checker.hostile.links", str(own), *targets]
    attacker = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any(path.is_symlink() for path in own.iterdir()), 20, "a link in the place of a folder")
    finally:
        attacker.terminate()
        said, _ = attacker.communicate(timeout=20)
    assert int(said) >= 0
    assert changed(before, looks(tmp_path, planted)) == []
    assert content(own) == mine
    assert not any(path.is_symlink() for path in own.rglob("*"))


class Watched(Breaker):
    """Knows no server: what health says is given."""

    is_named = True

    def _in_trouble(self) -> set[str]:
        assert ("soak-a", "orders") in self._board.broken
        return {"soak-a/orders"} if self.is_named else set()

    def _resume(self, table: Table) -> None:
        assert table.place not in self._board.broken


@pytest.mark.parametrize("is_named", [True, False])
def test_a_table_is_broken_for_a_while_and_mended(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    for name, seconds in (
        ("LEAST_SECONDS", 0.0),
        ("NOTICE_SECONDS", 0.2),
        ("LOOK_SECONDS", 0.01),
        ("CALM_SECONDS", 0.1),
    ):
        monkeypatch.setattr(breaker, name, seconds)
    monkeypatch.setattr(Platform, "is_healthy", lambda _: True)
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    board, before = Board(), content(table.parent)
    lines = Lines(tmp_path / "nemesis.jsonl")
    watched = Watched(Platform(tmp_path, {}), [Table("soak-a", "orders", 1.0)], board, lines, seed=1)
    watched.is_named = is_named
    watched.run(2, seconds=0.0)
    faults = read_lines(tmp_path / "nemesis.jsonl")
    assert [(one["fault"], one["target"], one["noticed"], "calm_wall" in one) for one in faults] == [
        ("F60", "soak-a/orders", is_named, is_named)
    ] * 2
    assert len({one["way"] for one in faults}) == 2
    assert all(one["t_wall"] < one["mended_wall"] and one["t_mono"] < one["healed"] for one in faults)
    assert (board.broken, board.peace.locked()) == (set(), False)
    assert content(table.parent) == before
