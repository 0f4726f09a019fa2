"""Shrinks what a table keeps only to refuse late writes: merges tombstone files, and drops tombstones and chunk ids that no
late write can meet any more. The floor rises to their versions. It is a commit of its own.
"""

from dataclasses import replace

from millrace.lake.changes import declaration
from millrace.lake.decide import TableContents
from millrace.lake.index import KeyIndex
from millrace.lake.log import Conflict, Snapshot, checkpoint_if_due, commit, refresh
from millrace.lake.schema import TableSpec
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.store import Store
from millrace.lake.tombstones import MOST_MERGED_ROWS, MergedTombstones, Tombstones, due, merge

MOST_ATTEMPTS = 100
# This many chunk ids cost nearly nothing. Dropping some would cost a commit.
MOST_CHUNK_IDS = 20_000


def purge(store: Store, spec: TableSpec, safe_version: int = NO_FLOOR) -> None:
    """Purges until nothing is worth a commit. No write at or below the safe version can still come."""
    snapshot, index, tombstones = Snapshot(), KeyIndex(store, spec.key), Tombstones(store)
    merged: dict[tuple[str, ...], MergedTombstones] = {}
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        before = TableState.of(snapshot.metadata)
        if spec.key:
            known = TableContents(store, snapshot, index, tombstones, before.tombstones, before.floor)
            state = _fewer_tombstones(known, before, safe_version, merged)
        else:
            state = _fewer_chunk_ids(snapshot, before, safe_version)
        if state == before:
            return
        try:
            snapshot = commit(store, snapshot, declaration(snapshot, spec, [], state))
        except Conflict:
            continue
        snapshot = checkpoint_if_due(store, snapshot, spec.chunk_memory, spec.log_retention)


def _fewer_tombstones(
    known: TableContents, state: TableState, safe_version: int, merged: dict[tuple[str, ...], MergedTombstones]
) -> TableState:
    limit = max(safe_version, state.floor)
    together = due(known.tombstones.listed(state.tombstones), MOST_MERGED_ROWS, limit)
    if not together:
        return state
    names = tuple(keys.name for keys in together if keys.name)
    if names not in merged:
        merged[names] = merge(known.store, together, limit, known.is_useless())
    kept = tuple(name for name in state.tombstones if name not in names)
    new = merged[names].name
    return replace(
        state,
        tombstones=(*kept, new) if new else kept,
        floor=max(state.floor, merged[names].purged),
    )


def _fewer_chunk_ids(snapshot: Snapshot, state: TableState, safe_version: int) -> TableState:
    # A table without definitions holds rows of other tables' imports, whose versions have no common order.
    if state.definition is None:
        return state
    remembered = sum(state.floor < known.version <= safe_version for known in snapshot.transactions.values())
    return replace(state, floor=safe_version) if remembered > MOST_CHUNK_IDS else state
