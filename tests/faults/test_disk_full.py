"""A full disk: the import waits, nothing is corrupted, and it ends by itself once there is room."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from millrace.client import Submission
from tests.support.platform import RunningPlatform, record, running_platform
from tests.support.waiting import wait_until

ROWS = 400_000

pytestmark = pytest.mark.slow


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[RunningPlatform]:
    """One of its own: its lake loses the small disk at the end."""
    with running_platform(tmp_path / "home") as started:
        yield started


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes. A process of its own unmounts it when this one closes the pipe or is killed."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=True, timeout=30)
    argv = ["sh", "-c", 'read _; umount -l "$1"', "sh", str(mount)]
    guard = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    yield mount
    guard.communicate(timeout=30)
    assert guard.returncode == 0


def test_a_full_disk_delays_and_corrupts_nothing(small_disk: Path, platform: RunningPlatform, tmp_path: Path) -> None:
    platform.home.lake.mkdir(exist_ok=True)
    (platform.home.lake / "crowded").symlink_to(small_disk)
    platform.declare("crowded", record("numbers", ("id", "long"), ("text", "string"), key=("id",)))
    path = tmp_path / "numbers.csv"
    ids = pl.int_range(ROWS, eager=True)
    pl.DataFrame({"id": ids, "text": ids.hash().cast(str) + ids.hash(7).cast(str)}).write_csv(path)
    begun = platform.client.imports.send_file(path, Submission("crowded", "numbers"))
    log = platform.home.logs / "data-plane.log"
    wait_until(lambda: "No space left on device" in log.read_text(errors="replace"), 120, "the disk to be full")
    assert platform.client.imports.show(begun["id"])["state"] == "processing"
    subprocess.run(["mount", "-o", "remount,size=400m", str(small_disk)], check=True, timeout=30)
    ended = platform.ended(begun["id"], 180)
    assert ended["state"] == "completed"
    assert ended["rows"]["accepted"] == ROWS
    stored = pl.scan_delta(str(platform.home.table("crowded", "numbers")))
    assert stored.select(pl.len(), pl.col("id").n_unique().alias("keys")).collect().row(0) == (ROWS, ROWS)
