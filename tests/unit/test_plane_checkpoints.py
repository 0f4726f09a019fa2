"""A query's checkpoint after a power cut: it starts at the last batch whose files are whole."""

import json
from pathlib import Path

import pytest

from millrace.plane.checkpoints import CheckpointWatch, mend_checkpoint


def write(folder: Path, batches: int) -> None:
    """The last batch is planned and not committed."""
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
    for batch in range(batches):
        offsets = json.dumps({"raw-input": {"0": 10 * batch}})
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchTimestampMs":{batch}}}\n{offsets}')
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in range(batches - 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def left(folder: Path, kind: str) -> list[int]:
    return sorted(int(path.name) for path in (folder / kind).iterdir() if path.name.isdigit())


def test_a_whole_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, 5)
    assert mend_checkpoint(tmp_path) == []
    assert (left(tmp_path, "offsets"), left(tmp_path, "commits")) == ([0, 1, 2, 3, 4], [0, 1, 2, 3])
    assert mend_checkpoint(tmp_path / "none") == []


@pytest.mark.parametrize(
    "cut", [b"", b"v", b"v1", b'v1\n{"batchTimestampMs":4}', b'v1\n{"batchTimestampMs":4}\n{"raw-']
)
def test_a_torn_plan_is_made_again(tmp_path: Path, cut: bytes) -> None:
    write(tmp_path, 5)
    (tmp_path / "offsets" / "4").write_bytes(cut)
    assert mend_checkpoint(tmp_path) == ["offsets/4"]
    assert not (tmp_path / "offsets" / ".4.crc").exists()
    assert (left(tmp_path, "offsets"), left(tmp_path, "commits")) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_a_torn_commit_repeats_its_batch_as_it_was_planned(tmp_path: Path) -> None:
    write(tmp_path, 5)
    (tmp_path / "commits" / "3").write_bytes(b"")
    mend_checkpoint(tmp_path)
    assert (left(tmp_path, "offsets"), left(tmp_path, "commits")) == ([0, 1, 2, 3], [0, 1, 2])


def test_batches_behind_a_torn_one_are_repeated(tmp_path: Path) -> None:
    write(tmp_path, 8)
    for kind, batch in (("offsets", 4), ("offsets", 7), ("commits", 5)):
        (tmp_path / kind / str(batch)).write_bytes(b"")
    mend_checkpoint(tmp_path)
    assert (left(tmp_path, "offsets")[-1], left(tmp_path, "commits")[-1]) == (6, 6)
    (tmp_path / "offsets" / "5").write_bytes(b"")
    mend_checkpoint(tmp_path)
    assert (left(tmp_path, "offsets"), left(tmp_path, "commits")) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_a_durable_watch_syncs_before_it_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 5)
    synced: list[str] = []
    for name in ("sync_file", "sync_folder"):
        monkeypatch.setattr(f"millrace.plane.checkpoints.{name}", lambda path: synced.append(str(path)))
    assert CheckpointWatch("q", tmp_path).look() is not None
    assert synced == []
    assert CheckpointWatch("q", tmp_path, durable=True).look() is not None
    wanted = {f"{tmp_path}/{name}" for name in ("offsets/2", "offsets/3", "offsets", "commits/3", "commits")}
    assert wanted == set(synced)
