"""A table that has grown: 100,000 files and 10⁸ keys. How long opening it takes, and commits of 1,000 keys, with a cold and a
warm page cache; how much memory, and how many pages of key files they read.

The log and the key files are fabricated: random hashes in runs of the sizes that merging leaves. Data files do not exist;
neither opening nor a commit reads them."""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.figure import Figure, at_most
from bench.platform import BUILD
from millrace.lake.checkpoint import write_checkpoint
from millrace.lake.key_format import read_keys, write_keys
from millrace.lake.keys import RUNS_FOLDER, KeyFile, run_name, sidecar_name
from millrace.lake.log import load
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable

FILES, ROWS_PER_FILE = 100_000, 1000
# What merging eight files of a level into one of the next leaves of 10⁸ keys.
RUN_FILES = (*(16_384,) * 5, *(2048,) * 7, *(512,) * 7, 160)
COMMITS, KEYS = 24, 1000
WARM_MS, OPEN_SECONDS, MEMORY_MB = 150, 1, 400
SPEC = TableSpec("grown", pa.schema([("id", pa.int64()), ("text", pa.string())]), ("id",))
_CHILD_SECONDS = 600


def run() -> list[Figure]:
    """Three processes: one makes the table, one measures it cold, one warm."""
    folder = Path(tempfile.mkdtemp(prefix="growth-", dir=BUILD))
    try:
        made = _measured("make", folder)
        cold, warm = _measured("cold", folder), _measured("warm", folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    note = f"{made['files']} files, {made['keys'] / 1e6:.0f} M keys, {made['gigabytes']:.2f} GB in {made['runs']} runs"
    return [
        at_most("growth.open", warm["open_s"], "s", OPEN_SECONDS, note),
        at_most("growth.commit", warm["new_ms"], "ms", WARM_MS, f"{KEYS} new keys, warm; {_spread(warm['new'])}"),
        at_most("growth.update", warm["known_ms"], "ms", WARM_MS, f"{KEYS} known keys, warm; {_spread(warm['known'])}"),
        at_most("growth.memory", warm["memory_mb"], "MB", MEMORY_MB, f"after all commits; {warm['mapped_mb']:.0f} MB mapped"),
        _told("growth.cold", cold["first_ms"], "ms", f"the first {KEYS} new keys after opening, nothing in the page cache"),
        _told("growth.cold_pages", cold["new_pages"], "pages", f"of {made['pages']}; the disk read {cold['read_mb']:.0f} MB"),
        _told("growth.known_pages", cold["known_pages"], "pages", f"of 4 KiB, for {KEYS} known keys"),
        _told("growth.again_pages", cold["again_pages"], "pages", "of 4 KiB, for the next new keys"),
    ]  # fmt: skip


def _told(name: str, value: float, unit: str, note: str) -> Figure:
    return Figure(name, round(value, 1), unit, "-", True, note)


def _spread(milliseconds: list[float]) -> str:
    return f"{min(milliseconds):.0f} to {max(milliseconds):.0f} ms"


def _measured(what: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.growth", what, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_CHILD_SECONDS, check=False)
    if ran.returncode:
        raise RuntimeError(f"{what}: {ran.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _make(folder: Path) -> dict[str, Any]:
    store, random = Store(folder), np.random.default_rng(14)
    paths = [f"part-{number:08d}-{number * 2654435761 % (1 << 32):08x}.parquet" for number in range(FILES)]
    first = keys = size = pages = 0
    for count in RUN_FILES:
        run = _fabricated(random, tuple(sorted(paths[first : first + count])))
        name = run_name(run.files)
        write_keys(store, name, run, filtered=True)
        first, keys, size = first + count, keys + len(run), size + store.size(name)
        pages += -(-store.size(name) // 4096)
        del run
    if first != FILES:
        raise RuntimeError(f"the runs cover {first} files, not {FILES}")
    _write_log(store, paths)
    os.sync()
    return {"files": FILES, "keys": keys, "gigabytes": size / 1e9, "runs": len(RUN_FILES), "pages": pages}


def _fabricated(random: np.random.Generator, files: tuple[str, ...]) -> KeyFile:
    rows = len(files) * ROWS_PER_FILE
    h1 = np.sort(random.integers(0, 1 << 64, rows, dtype=np.uint64))
    h2 = random.integers(0, 1 << 64, rows, dtype=np.uint64)
    # Each file has each of its positions once.
    order = random.permutation(np.arange(rows, dtype=np.uint32))
    position, file = order % np.uint32(ROWS_PER_FILE), order // np.uint32(ROWS_PER_FILE)
    return KeyFile(files, h1, h2, np.ones(rows, dtype=np.int64), position, file)


def _write_log(store: Store, paths: list[str]) -> None:
    """A first version with all files, as the platform writes one, and a checkpoint of it."""
    table = LakeTable(store, SPEC)
    empty = table.apply([]).version
    adds = [_add(path, number) for number, path in enumerate(paths)]
    body = b"\n".join([b'{"commitInfo":{"operation":"WRITE"}}', *adds]) + b"\n"
    store.write(f"_delta_log/{empty + 1:020}.json", body)
    _write_checkpoint(store)


def _add(path: str, number: int) -> bytes:
    least, greatest = number * ROWS_PER_FILE, number * ROWS_PER_FILE + ROWS_PER_FILE - 1
    stats = {
        "numRecords": ROWS_PER_FILE,
        "tightBounds": True,
        "minValues": {"id": least, "text": f"text of {least}"},
        "maxValues": {"id": greatest, "text": f"text of {greatest}"},
        "nullCount": {"id": 0, "text": 0},
    }
    add = {"path": path, "partitionValues": {}, "size": 20_000, "modificationTime": 0, "dataChange": True}
    return json.dumps({"add": {**add, "stats": json.dumps(stats)}}).encode()


def _write_checkpoint(store: Store) -> None:
    snapshot = load(store)
    assert snapshot.metadata is not None
    write_checkpoint(store, snapshot.version, snapshot.protocol, snapshot.metadata, snapshot.files.values(), ())


def _cold(folder: Path) -> dict[str, Any]:
    """Pages are counted by a handle that has read none: each page is checked when it is read for the first time."""
    store, random = Store(folder), np.random.default_rng(os.getpid())
    new, known, again = _staged(store, random, "new"), _known(store, random), _staged(store, random, "again")
    for entry in store.list(RUNS_FOLDER):
        with open(store.path(entry.name), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    table, blocks = LakeTable(store, SPEC), resource.getrusage(resource.RUSAGE_SELF).ru_inblock
    table.snapshot()
    first = _timed(table, new)
    read = resource.getrusage(resource.RUSAGE_SELF).ru_inblock - blocks
    counts = [table.key_pages_read]
    for file in (again, known):
        _timed(table, file)
        counts.append(table.key_pages_read)
    return {
        "first_ms": first,
        "new_pages": counts[0],
        "again_pages": counts[1] - counts[0],
        "known_pages": counts[2] - counts[1],
        "read_mb": read * 512 / 1e6,
    }


def _warm(folder: Path) -> dict[str, Any]:
    store, random = Store(folder), np.random.default_rng(os.getpid())
    # All of it in the page cache, and gone from this process.
    for entry in store.list(RUNS_FOLDER):
        Path(store.path(entry.name)).read_bytes()
    new = [_staged(store, random, f"new{number}") for number in range(COMMITS)]
    known = [_known(store, random, number) for number in range(COMMITS // 3)]
    before, begun = _memory(), time.perf_counter()
    table = LakeTable(store, SPEC)
    table.snapshot()
    opened = time.perf_counter() - begun
    _timed(table, new[0])
    times = [_timed(table, file) for file in new[1:]]
    updates = [_timed(table, file) for file in known]
    anonymous, mapped = _memory()
    return {
        "open_s": opened,
        "new_ms": statistics.median(times),
        "new": times,
        "known_ms": statistics.median(updates),
        "known": updates,
        "memory_mb": anonymous,
        "mapped_mb": mapped - before[1],
    }


def _timed(table: LakeTable, file: StagedFile) -> float:
    begun = time.perf_counter()
    table.apply([file])
    return 1000 * (time.perf_counter() - begun)


def _staged(store: Store, random: np.random.Generator, name: str) -> StagedFile:
    ids = pa.array(random.integers(1 << 40, 1 << 60, KEYS))
    ours = {"_version": pa.array(np.full(KEYS, 2)), "_import": ["imp"] * KEYS, "_row": pa.array(np.arange(KEYS))}
    rows = pa.table({"id": ids, "text": pa.nulls(KEYS, pa.string()), **ours})
    return write_data_file(store, rows, SPEC.key, name)


def _known(store: Store, random: np.random.Generator, number: int = 0) -> StagedFile:
    """Rows with keys that the table has: their hashes are taken from its runs."""
    staged = _staged(store, random, f"known{number}")
    runs = [run for entry in store.list(RUNS_FOLDER) if (run := read_keys(store, entry.name)) is not None]
    total = sum(len(run) for run in runs)
    taken: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]] = []
    for run in runs:
        rows = np.unique(random.integers(0, len(run), round(KEYS * len(run) / total)))
        taken.append((run.h1[rows], run.h2[rows]))
    h1, h2 = (np.concatenate(lane)[:KEYS] for lane in zip(*taken, strict=True))
    order = np.argsort(h1)
    known = read_keys(store, sidecar_name(staged.path))
    assert known is not None
    part = known.part(slice(0, len(order)))
    write_keys(store, sidecar_name(staged.path), replace(part, h1=h1[order], h2=h2[order]))
    return staged


def _memory() -> tuple[float, float]:
    """The memory of this process, and the mapped files that it looks at, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) / 1000, int(lines["RssFile"].split()[0]) / 1000


if __name__ == "__main__":
    parts = {"make": _make, "cold": _cold, "warm": _warm}
    print(json.dumps(parts[sys.argv[1]](Path(sys.argv[2]))))
