"""Deletes files that nothing references: those seen unreferenced for longer than the retention and older than the grace.
Discarding removes files that nobody can read any more from the table; the next vacuum deletes their bytes.
"""

from collections.abc import Callable
from datetime import timedelta

import orjson

from millrace.lake.actions import now_ms, remove_action
from millrace.lake.batch import unpublished_names
from millrace.lake.deletion_vectors import vector_file
from millrace.lake.feed import CHANGES_FOLDER
from millrace.lake.foreign import refuse_unknown
from millrace.lake.key_format import read_keys
from millrace.lake.keys import KEYS_FOLDER, RUNS_FOLDER, sidecar_name
from millrace.lake.log import Conflict, Snapshot, commit, load, refresh
from millrace.lake.state import TableState
from millrace.lake.store import TEMPORARY_FOLDER, Store
from millrace.lake.tombstones import TOMBSTONES_FOLDER
from millrace.model.errors import Unavailable

# When each file was first seen unreferenced. The log's removes do not serve: there would be one for each marked row.
RECORD = "_millrace/unreferenced.json"
MOST_ATTEMPTS = 100


def vacuum(store: Store, retention: timedelta, grace: timedelta) -> list[str]:
    """Deletes files and returns their names. Readers that started within the retention still find all their files."""
    # First list files, then unpublished files, then read the log. So files committed meanwhile are referenced, and an import
    # that is published meanwhile is either still unpublished or already committed.
    data = [entry for entry in store.list("") if entry.name.endswith((".parquet", ".bin"))]
    data += store.list(TOMBSTONES_FOLDER)
    changes = [entry for entry in store.list(CHANGES_FOLDER) if entry.name.endswith(".parquet")]
    sidecars, runs = store.list(KEYS_FOLDER), store.list(RUNS_FOLDER)
    unpublished = unpublished_names(store)
    snapshot = load(store)
    refuse_unknown(snapshot, store.where)
    now, seen = now_ms() / 1000, first_seen(store)
    referenced = _referenced(store, snapshot) | unpublished
    idle = {entry.name: min(seen.get(entry.name, now), now) for entry in data if entry.name not in referenced}
    # Only the commit that a file of changes was written for names it, if any does.
    idle |= {entry.name: min(entry.modified_at, now) for entry in changes}
    is_old = {
        entry.name for entry in (*data, *changes, *sidecars, *runs) if entry.modified_at <= now - grace.total_seconds()
    }
    gone = {name for name, since in idle.items() if since <= now - retention.total_seconds() and name in is_old}
    kept_sidecars = {sidecar_name(entry.name) for entry in data if entry.name not in gone}
    orphans = {e.name for e in sidecars if e.name in is_old and e.name not in kept_sidecars}
    useless = {e.name for e in runs if e.name in is_old and not _covers_any(store, e.name, snapshot)}
    leftovers = {e.name for e in store.list(TEMPORARY_FOLDER) if e.modified_at <= now - grace.total_seconds()}
    deleted = sorted(gone | orphans | useless | leftovers)
    for name in deleted:
        store.delete(name)
    store.write(RECORD, orjson.dumps({name: since for name, since in idle.items() if name not in gone}))
    return deleted


def discard_files(store: Store, is_unwanted: Callable[[str], bool]) -> int:
    """Returns the number of removed files."""
    snapshot = Snapshot()
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        unwanted = [file for file in snapshot.files.values() if is_unwanted(file.name)]
        if not unwanted:
            return 0
        try:
            commit(store, snapshot, [remove_action(file) for file in unwanted])
        except Conflict:
            continue
        return len(unwanted)
    raise Unavailable(f"{store.where} is written by others all the time.", remedy="Try again.")


def _referenced(store: Store, snapshot: Snapshot) -> set[str]:
    vectors = [file.deletion_vector for file in snapshot.files.values() if file.deletion_vector]
    names = {file.name for file in snapshot.files.values()} | {name for v in vectors if (name := vector_file(store, v))}
    return names | set(TableState.of(snapshot.metadata).tombstones)


def first_seen(store: Store) -> dict[str, float]:
    """What the last vacuum noted. Nothing if the note was damaged: then the times begin anew."""
    try:
        noted = orjson.loads(store.read(RECORD))
        return {str(name): float(since) for name, since in noted.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _covers_any(store: Store, run: str, snapshot: Snapshot) -> bool:
    keys = read_keys(store, run)
    return keys is not None and any(path in snapshot.files for path in keys.files)
