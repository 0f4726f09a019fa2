"""What `MILLRACE_DURABILITY=power_cut` costs a table: staging and committing rows, with and without it, on the disk of the
temporary folder."""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.figure import Figure, at_most
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable

COMMITS, ROWS = 60, 1_000
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
# A disk that needs longer for an fsync than this is not one to run a durable platform on.
MOST_EXTRA_MS = 150.0


def run() -> list[Figure]:
    here = Path.cwd() / "build"
    here.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=here) as folder:
        plain, durable = (_seconds(Path(folder) / str(durable), durable) for durable in (False, True))
    extra = 1000 * (durable - plain)
    return [
        at_most("commit_process", 1000 * plain, "ms", 100, f"{ROWS} rows staged and committed, median of {COMMITS}"),
        at_most("commit_power_cut_extra", extra, "ms", MOST_EXTRA_MS, f"{1000 * durable:.1f} ms altogether"),
    ]


def _seconds(root: Path, durable: bool) -> float:
    table, taken = LakeTable(Store(root, durable), TableSpec("durability", SCHEMA, key=("id",))), []
    for number in range(COMMITS):
        rows = _rows(number)
        begun = time.perf_counter()
        table.apply([write_data_file(table.store, rows, ("id",), "part")])
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _rows(number: int) -> pa.Table:
    """New keys, and a tenth of those of the commit before."""
    ids = np.arange(ROWS) + number * (ROWS * 9 // 10)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array([f"row {one} of commit {number}" for one in ids.tolist()]),
            "_version": pa.array(np.full(ROWS, number + 1), pa.int64()),
            "_import": pa.array(["bench"] * ROWS),
            "_row": pa.array(np.arange(1, ROWS + 1), pa.int64()),
        }
    )
