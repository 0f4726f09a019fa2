"""What a change feed costs a table that declares it: commits of 50,000 updated keys, spread over the whole table, and of
50,000 new keys, with and without it, without a platform."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.figure import Figure, at_most
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable

TABLE_ROWS, FILE_ROWS, CHANGED = 1_000_000, 100_000, 50_000
COMMITS = 15
SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("amount", pa.float64()), ("name", pa.string()), ("note", pa.string())]
)
# For an append and for an update. A file of changes for an append would take far longer.
MOST_EXTRA_MS = 10.0, 1000.0
Ids = npt.NDArray[np.int64]


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        tables = {feed: _filled(Path(folder) / str(feed), feed) for feed in (False, True)}
        appends, updates = _medians(tables, _new), _medians(tables, _known)
    named = (("append_with_feed", appends, "new keys"), ("update_with_feed", updates, f"of {TABLE_ROWS} keys"))
    return [
        at_most(name, taken[True] - taken[False], "ms more", most, f"{CHANGED} {what}: {_told(taken)}")
        for (name, taken, what), most in zip(named, MOST_EXTRA_MS, strict=True)
    ]


def _told(taken: dict[bool, float]) -> str:
    return f"{taken[False]:.1f} ms without, {taken[True]:.1f} ms with, medians of {COMMITS}"


def _filled(root: Path, feed: bool) -> LakeTable:
    table = LakeTable(Store(root), TableSpec("fed", SCHEMA, key=("id",), change_feed=feed))
    for first in range(0, TABLE_ROWS, FILE_ROWS):
        table.apply([_staged(table, np.arange(first, first + FILE_ROWS), 1)])
    return table


def _medians(tables: dict[bool, LakeTable], ids: Callable[[int], Ids]) -> dict[bool, float]:
    """Milliseconds of a commit of staged rows, in turns."""
    taken: dict[bool, list[float]] = {feed: [] for feed in tables}
    for number in range(COMMITS):
        for feed, table in tables.items():
            staged = _staged(table, ids(number), number + 2)
            begun = time.perf_counter()
            table.apply([staged])
            taken[feed].append(1000 * (time.perf_counter() - begun))
    return {feed: statistics.median(times) for feed, times in taken.items()}


def _new(number: int) -> Ids:
    return np.arange(CHANGED) + TABLE_ROWS + CHANGED * number


def _known(number: int) -> Ids:
    return np.random.default_rng(number).choice(TABLE_ROWS, CHANGED, replace=False)


def _staged(table: LakeTable, ids: Ids, version: int) -> StagedFile:
    count = len(ids)
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array((ids % 3650).astype(np.int32), pa.date32()),
            "amount": pa.array(ids * 0.37 + version),
            "name": pa.array([f"customer {number}" for number in ids.tolist()]),
            "note": pa.array([f"some words about order {number} at {version}" for number in ids.tolist()]),
            "_version": pa.array(np.full(count, version), pa.int64()),
            "_import": pa.repeat("bench", count),
            "_row": pa.array(np.arange(1, count + 1), pa.int64()),
        }
    )
    return write_data_file(table.store, rows, ("id",), "part")
