"""Brings tables of earlier releases to what every engine reads. They may have deletion vectors inline in the log, and files
of narrower types than their columns. Once it is done, a property of the table says so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from millrace.lake.actions import Action, AddFile, remove_action
from millrace.lake.changes import EXACT_TYPES, unmistakable
from millrace.lake.compact import run
from millrace.lake.data_files import data_file
from millrace.lake.deletion_vectors import dead_positions, store_vectors
from millrace.lake.log import Conflict, Snapshot, commit, load, refresh
from millrace.lake.schema import TableSpec, arrow_schema
from millrace.lake.store import Store

MOST_ATTEMPTS = 100
_NARROW = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def mend(store: Store, spec: TableSpec) -> None:
    """Readers see no change."""
    snapshot = load(store)
    if any(_inline(snapshot)):
        snapshot = _committed(store, snapshot, lambda current: _moved(store, current))
    if snapshot.metadata is not None and EXACT_TYPES not in snapshot.metadata.configuration:
        for file in list(_narrow(store, snapshot)):
            run(store, spec, (file,))
        if not any(_narrow(store, load(store))):
            _committed(store, snapshot, _noted)


def _committed(store: Store, snapshot: Snapshot, actions: Callable[[Snapshot], Sequence[Action]]) -> Snapshot:
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        wanted = actions(snapshot)
        if not wanted:
            break
        try:
            return commit(store, snapshot, wanted)
        except Conflict:
            continue
    return snapshot


def _inline(snapshot: Snapshot) -> Iterator[AddFile]:
    return (file for file in snapshot.files.values() if file.deletion_vector and file.deletion_vector.storage == "i")


def _moved(store: Store, snapshot: Snapshot) -> list[Action]:
    files = {file.path: file for file in _inline(snapshot)}
    vectors = store_vectors(store, {path: dead_positions(store, file) for path, file in files.items()})
    removed = [remove_action(file, data_change=False) for file in files.values()]
    added = [replace(file, deletion_vector=vectors[path]).to_json(data_change=False) for path, file in files.items()]
    return unmistakable(snapshot, removed + added) if files else []


def _narrow(store: Store, snapshot: Snapshot) -> Iterator[AddFile]:
    """Files with a column that is narrower than the table's."""
    declared = arrow_schema(snapshot.metadata.schema_json) if snapshot.metadata else pa.schema([])
    wide = [field for field in declared if any(field.type == wider for _, wider in _NARROW)]
    for file in snapshot.files.values() if wide else ():
        with data_file(store, file) as parquet:
            stored = parquet.schema_arrow
        pairs = ((stored.field(field.name).type, field.type) for field in wide if field.name in stored.names)
        if any(pair in _NARROW for pair in pairs):
            yield file


def _noted(snapshot: Snapshot) -> list[Action]:
    table = snapshot.metadata
    if table is None or EXACT_TYPES in table.configuration:
        return []
    return [replace(table, configuration={**table.configuration, EXACT_TYPES: "true"}).to_json()]
