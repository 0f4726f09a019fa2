"""Every boundary of the pipeline × kill -9, a failure, a pause: the import ends by itself, exact, once (I3, I4, I5)."""

from pathlib import Path

import polars as pl
import pytest

from tests.support.platform import RunningPlatform, record
from tests.support.waiting import wait_until

ROWS = 40_000
BAD = 7
NOTES = record("notes", ("id", "long"), ("text", "string"), key=("id",))
# A failure at each boundary, and a kill between a sink's commit and its report. test_kill.py kills every process.
POINTS = (
    "after_op_append",
    "before_store_commit",
    "after_store_commit",
    "after_chunk_produce",
    "before_validate_produce",
    "before_sink_commit",
    "after_sink_commit",
    "after_progress",
    "after_ledger_commit",
    "before_end",
)
QUICK = {*((point, "raise") for point in POINTS), ("after_sink_commit", "kill")}
EVERY = [
    pytest.param(point, action, id=f"{point}-{action}", marks=() if (point, action) in QUICK else pytest.mark.slow)
    for action in ("raise", "pause", "kill")
    for point in POINTS
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three chunks and a bit; the first rows come again at the end, so that the last one must win."""
    path = tmp_path_factory.mktemp("data") / "notes.csv"
    numbers = pl.int_range(ROWS, eager=True)
    ids = pl.Series([*(f"x{number}" for number in range(BAD)), *numbers[BAD:].cast(str)])
    first = pl.DataFrame({"id": ids, "text": numbers.cast(str).str.zfill(70)})
    again = pl.DataFrame({"id": numbers[BAD : BAD + 100].cast(str), "text": ["the last one"] * 100})
    pl.concat([first, again]).write_csv(path)
    return path


@pytest.mark.parametrize(("point", "action"), EVERY)
def test_whatever_happens_at_a_boundary(
    point: str, action: str, platform: RunningPlatform, failpoints: Path, file: Path
) -> None:
    tenant = f"{point}-{action}"
    target = platform.declare(tenant, NOTES)
    armed = failpoints / point
    (failpoints / ".arming").write_text(action)
    (failpoints / ".arming").replace(armed)
    ended = platform.send(target, file, idempotency_key=tenant)
    wait_until(lambda: not armed.exists(), 60, f"{point} is reached")
    assert ended["state"] == "completed", ended
    assert ended["rows"] == {"read": ROWS + 100, "accepted": ROWS + 100 - BAD, "rejected": BAD, "ignored": 0}
    stored = pl.scan_delta(str(platform.home.table(tenant, "notes"))).collect()
    assert (len(stored), stored["id"].n_unique()) == (ROWS - BAD, ROWS - BAD)
    assert len(stored.filter(pl.col("text") == "the last one")) == 100
    rejected = pl.scan_delta(str(platform.home.table_errors(tenant, "notes"))).collect()
    assert (len(rejected), rejected["row"].n_unique()) == (BAD, BAD)
    ends = [event for event in platform.events(tenant=tenant) if event["type"] == "millrace.import.completed"]
    assert len({event["id"] for event in ends if event["subject"] == ended["id"]}) == 1
