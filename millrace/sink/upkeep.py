"""Which tables have had so many commits that merging their small files and key files pays, and the merging itself."""

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from millrace.lake.schema import TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum

COMMITS = 20
ROWS = 2_000_000
# Merging while a large file loads takes a quarter of the cores from it: wait for a pause, but not for ever.
LARGE_COMMIT_ROWS = 50_000
PAUSE_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 600.0
# A reader may still hold a version this old.
REMOVED_FILES_KEPT = timedelta(days=1)
# A staged file this old belongs to no batch that could still be tried again.
STAGED_FILES_KEPT = timedelta(days=7)


@dataclass(slots=True)
class _Wear:
    spec: TableSpec
    since: float
    commits: int = 0
    rows: int = 0

    @property
    def is_heavy(self) -> bool:
        return self.commits >= COMMITS or self.rows >= ROWS


class Upkeep:
    """Told of every commit by the sinks; asked by the data plane, from another thread, what is due."""

    def __init__(self) -> None:
        self._worn: dict[Path, _Wear] = {}
        self._busy_until = 0.0
        self._lock = threading.Lock()

    def note(self, root: Path, spec: TableSpec, rows: int) -> None:
        now = time.monotonic()
        with self._lock:
            if rows >= LARGE_COMMIT_ROWS:
                self._busy_until = now + PAUSE_SECONDS
            wear = self._worn.setdefault(root, _Wear(spec, now))
            wear.spec = spec
            wear.commits += 1
            wear.rows += rows

    def take_due(self) -> list[tuple[Path, TableSpec]]:
        now = time.monotonic()
        with self._lock:
            pausing = now > self._busy_until
            worn = [(root, wear) for root, wear in self._worn.items() if wear.is_heavy]
            due = [(root, wear.spec) for root, wear in worn if pausing or now - wear.since > LONGEST_WAIT_SECONDS]
            for root, _ in due:
                del self._worn[root]
        return due


def tidy(root: Path, spec: TableSpec) -> None:
    """Merges the table's small files and key files, and deletes what no reader and no retry can want. Writers go on."""
    LakeTable.open(root, spec).maintain()
    vacuum(Store(root), REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
