"""What a table holds now, from its log alone: rows, bytes, files and version."""

from dataclasses import dataclass

from millrace.lake.log import load
from millrace.lake.store import Store


@dataclass(frozen=True, slots=True)
class TableStatus:
    """`version` is the Delta table's own; -1 while nothing was written to it."""

    version: int
    rows: int
    bytes: int
    files: int


def table_status(store: Store) -> TableStatus:
    snapshot = load(store)
    size = sum(file.size for file in snapshot.files.values())
    return TableStatus(snapshot.version, snapshot.live_rows, size, len(snapshot.files))
