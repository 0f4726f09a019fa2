"""A durable table survives a power cut at any moment: it can be read and written, and has every commit that was
acknowledged."""

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from millrace.lake import checkpointing, store
from millrace.lake.log import load
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from tests.support.lake import KEYED, apply_rows, content, stage_mixed
from tests.support.power_cut import FragileDisk, cuts

SPEC = replace(KEYED, log_retention=timedelta(0))
TABLE = Path("lake", "acme", "t")
COMMITS = 4
Row = tuple[int, int]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FragileDisk]:
    """Checkpoints follow each other fast, and the log is cleaned."""
    monkeypatch.setattr(checkpointing, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpointing, "MOST_VERSIONS", 1)
    monkeypatch.setattr(checkpointing, "LEAST_RETENTION", timedelta(0))
    home = tmp_path / "home"
    home.mkdir()
    with monkeypatch.context() as patch:
        disk = FragileDisk(home, patch)
        yield disk
    disk.close()


def write(disk: FragileDisk) -> list[list[Row]]:
    """The table after each commit, the empty one first. Each commit adds keys, updates some and deletes one."""
    table, model, models = (
        LakeTable(Store(disk.root / TABLE, durable=True), SPEC),
        dict[int, int](),
        list[list[Row]]([[]]),
    )
    for version in range(1, COMMITS + 1):
        rows = [(key, version, False) for key in range(version - 1, 3 * version)] + [(version - 2, version, True)]
        table.apply([stage_mixed(table.store, rows)])
        model |= {key: version for key, _, _ in rows}
        model.pop(version - 2)
        models.append(sorted(model.items()))
        disk.acknowledged = version
    return models


def violations(disk: FragileDisk, models: list[list[Row]], folder: Path) -> Iterator[str]:
    for number, (moment, luck) in enumerate(cuts(disk)):
        target = folder / "left"
        disk.left(moment, target, luck)
        possible = models[moment.acknowledged : moment.acknowledged + 2]
        table = LakeTable(Store(target / TABLE), SPEC)
        try:
            found = content(table) if load(table.store).version >= 0 else []
            if found not in possible:
                yield f"cut {number}, after {moment.acknowledged} commits: {found}"
            if number % 4 == 0:
                apply_rows(table, [(1000, 1000)])
                assert content(table) == sorted([*found, (1000, 1000)])
        except Exception as error:
            yield f"cut {number}, after {moment.acknowledged} commits: {type(error).__name__}: {error}"
        shutil.rmtree(target)


def test_no_acknowledged_commit_is_lost(disk: FragileDisk, tmp_path: Path) -> None:
    models = write(disk)
    assert len(disk.moments) > 10 * COMMITS
    assert list(violations(disk, models, tmp_path)) == []


@pytest.mark.parametrize("forgotten", ["sync_folder", "flush"])
def test_a_forgotten_sync_is_found(
    disk: FragileDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    def without_sync(file: object, *_: object) -> None:
        if forgotten == "flush":
            file.flush()  # type: ignore[attr-defined]

    monkeypatch.setattr(store, forgotten, without_sync)
    models = write(disk)
    assert list(itertools.islice(violations(disk, models, tmp_path), 1))


def test_a_file_that_a_killed_writer_left_is_secured(disk: FragileDisk, tmp_path: Path) -> None:
    here = disk.root / TABLE
    assert Store(here).put_if_absent("part", b"content")
    assert not Store(here, durable=True).put_if_absent("part", b"content")
    disk.left(disk.moments[-1], tmp_path / "left", None)
    assert (tmp_path / "left" / TABLE / "part").read_bytes() == b"content"


def test_a_folder_whose_sync_failed_is_synced_with_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(folder: str) -> None:
        synced.append(Path(folder))
        if synced.count(tmp_path) == 1 and synced[-1] == tmp_path:
            raise OSError("the disk is busy")

    monkeypatch.setattr(store, "sync_folder", sync)
    table = Store(tmp_path / "lake" / "acme" / "t", durable=True)
    with pytest.raises(OSError, match="busy"):
        table.write("part", b"content")
    table.write("part", b"content")
    assert synced.count(tmp_path) == 2
