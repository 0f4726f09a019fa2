"""The present size of a table, from its log alone: rows, bytes, files and version."""

from dataclasses import dataclass

from millrace.lake.log import load
from millrace.lake.store import Store


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`version` is that of the Delta table; -1 before the first write."""

    version: int
    rows: int
    bytes: int
    files: int


def table_status(store: Store) -> TableStatus:
    snapshot = load(store)
    size = sum(file.size for file in snapshot.files.values())
    return TableStatus(snapshot.version, snapshot.live_rows, size, len(snapshot.files))
