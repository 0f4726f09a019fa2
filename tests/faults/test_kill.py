"""kill -9 of each part during an import: it ends by itself, with exact counts and nothing twice (I3, I4, I5)."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from millrace.client import Submission
from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

ROWS = 300_000
BAD_EVERY = 10_007
SPEEDS = (("id", "long"), ("device", "string"), ("speed", "double"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 22 MB, some rows bad, every key once."""
    path = tmp_path_factory.mktemp("data") / "speeds.csv"
    numbers = pl.int_range(ROWS, eager=True)
    frame = pl.DataFrame({"id": numbers, "device": numbers.cast(str).str.zfill(60), "speed": numbers / 7})
    bad = pl.when(pl.col("id") % BAD_EVERY == 0).then(pl.lit("broken")).otherwise(pl.col("id").cast(str)).alias("id")
    frame.with_columns(bad).write_csv(path)
    return path


def expected_rejects() -> int:
    return len(range(0, ROWS, BAD_EVERY))


class Sending:
    """An upload in a thread of its own, as a user's would be in another process."""

    def __init__(self, platform: RunningPlatform, tenant: str, file: Path) -> None:
        self.document: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._send, args=(platform, tenant, file))
        self._thread.start()

    def _send(self, platform: RunningPlatform, tenant: str, file: Path) -> None:
        self.document = dict(platform.client.imports.send_file(file, Submission(tenant, "speeds")))

    def join(self) -> str:
        self._thread.join(180)
        return str(self.document["id"])


def judged_some(platform: RunningPlatform, tenant: str) -> bool:
    items = platform.client.imports.list(tenant=tenant, limit=1)
    return bool(items) and items[0]["chunks"]["judged"] > 0


def begun(platform: RunningPlatform, tenant: str) -> bool:
    items = platform.client.imports.list(tenant=tenant, limit=1)
    return bool(items) and items[0]["chunks"]["sent"] > 0


def check(platform: RunningPlatform, tenant: str, ended: dict[str, Any]) -> None:
    rejects = expected_rejects()
    assert ended["state"] == "completed", ended
    assert ended["rows"] == {"read": ROWS, "accepted": ROWS - rejects, "rejected": rejects, "ignored": 0}
    location = str(platform.home.table(tenant, "speeds"))
    stored = pl.scan_delta(location).select(pl.len().alias("rows"), pl.col("id").n_unique().alias("keys")).collect()
    assert stored.row(0) == (ROWS - rejects, ROWS - rejects), "nothing lost, nothing twice, at the moment of END"
    errors = pl.scan_delta(str(platform.home.table_errors(tenant, "speeds"))).filter(pl.col("_import") == ended["id"])
    assert errors.select(pl.len(), pl.col("row").n_unique().alias("distinct")).collect().row(0) == (rejects, rejects)
    ends = [event for event in platform.events(tenant=tenant) if event["type"] == "millrace.import.completed"]
    assert len({event["id"] for event in ends if event["subject"] == ended["id"]}) == 1


@pytest.mark.parametrize(
    "victim", ["data-plane", pytest.param("jvm", marks=pytest.mark.slow), "worker", "kafka", "server"]
)
def test_kill_during_imports(platform: RunningPlatform, file: Path, victim: str) -> None:
    """Of tables with a key and without, at once."""
    keys: dict[str, tuple[str, ...]] = {f"killed-{victim}-keyed": ("id",), f"killed-{victim}-keyless": ()}
    for tenant, key in keys.items():
        platform.declare(tenant, record("speeds", *SPEEDS, key=key))
    sendings = {tenant: Sending(platform, tenant, file) for tenant in keys}
    reached = judged_some if victim in ("data-plane", "jvm", "worker") else begun
    wait_until(lambda: all(reached(platform, tenant) for tenant in keys), 60, "both to be under way")
    for process in platform.workers() if victim == "worker" else [platform.part(victim)]:
        # A worker may have ended by itself since they were counted.
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for tenant, sending in sendings.items():
        check(platform, tenant, platform.ended(sending.join(), 180))


def test_the_whole_platform_killed_starts_again_where_it_was(platform: RunningPlatform, file: Path) -> None:
    tenant = "killed-all"
    platform.declare(tenant, record("speeds", *SPEEDS, key=("id",)))
    import_id = platform.client.imports.send_file(file, Submission(tenant, "speeds"))["id"]
    platform.process.kill()
    platform.process.wait(30)
    platform.client.close()
    platform.start()
    check(platform, tenant, platform.ended(import_id, 180))


def test_a_chunk_that_kills_its_worker_fails_its_import_only(platform: RunningPlatform, tmp_path: Path) -> None:
    platform.declare("poisoned", record("speeds", *SPEEDS, key=("id",)))
    platform.declare("healthy", record("speeds", *SPEEDS, key=("id",)))
    poison, good = tmp_path / "poison.csv", tmp_path / "good.csv"
    poison.write_text("id,device,speed\n1,kills the worker,1.0\n")
    good.write_text("id,device,speed\n1,fine,1.0\n")
    begun = platform.client.imports.send_file(poison, Submission("poisoned", "speeds"))
    other = platform.client.imports.send_file(good, Submission("healthy", "speeds"))
    ended = platform.ended(begun["id"], 180)
    assert ended["state"] == "failed"
    assert ended["error"]["code"] == "chunk_failed"
    assert ended["rows"] == {"read": 1, "accepted": 0, "rejected": 1, "ignored": 0}
    assert platform.ended(other["id"], 180)["state"] == "completed"


def test_an_import_that_was_stopping_when_the_server_died_still_ends(platform: RunningPlatform, file: Path) -> None:
    platform.declare("stopped", record("speeds", *SPEEDS, key=("id",)))
    import_id = platform.client.imports.send_file(file, Submission("stopped", "speeds"))["id"]
    platform.client.imports.cancel(import_id)
    platform.part("server").kill()
    ended = platform.ended(import_id, 180)
    rows = ended["rows"]
    assert ended["state"] == "cancelled"
    assert rows["read"] == rows["accepted"] + rows["rejected"] + rows["ignored"]
