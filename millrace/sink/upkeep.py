"""Which tables have had so many commits that merging their small files and key files pays, and the merging itself."""

import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from millrace.lake.schema import TableSpec
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.lake.vacuum import vacuum

COMMITS = 20
ROWS = 2_000_000
# A reader may still hold a version this old.
REMOVED_FILES_KEPT = timedelta(days=1)
# A staged file this old belongs to no batch that could still be tried again.
STAGED_FILES_KEPT = timedelta(days=7)


@dataclass(slots=True)
class _Wear:
    spec: TableSpec
    commits: int = 0
    rows: int = 0


class Upkeep:
    """Told of every commit by the sinks; asked by the data plane, from another thread, what is due."""

    def __init__(self) -> None:
        self._worn: dict[Path, _Wear] = {}
        self._lock = threading.Lock()

    def note(self, root: Path, spec: TableSpec, rows: int) -> None:
        with self._lock:
            wear = self._worn.setdefault(root, _Wear(spec))
            wear.spec = spec
            wear.commits += 1
            wear.rows += rows

    def take_due(self) -> list[tuple[Path, TableSpec]]:
        with self._lock:
            due = [
                (root, wear.spec) for root, wear in self._worn.items() if wear.commits >= COMMITS or wear.rows >= ROWS
            ]
            for root, _ in due:
                del self._worn[root]
        return due


def tidy(root: Path, spec: TableSpec) -> None:
    """Merges the table's small files and key files, and deletes what no reader and no retry can want. Writers go on."""
    LakeTable.open(root, spec).maintain()
    vacuum(Store(root), REMOVED_FILES_KEPT, STAGED_FILES_KEPT)
