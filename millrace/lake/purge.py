"""What a table remembers only to keep late writes out, made small again: tombstone files are merged, and tombstones and
chunk ids that nothing on its way can meet are forgotten, with the floor raised to where they were. A commit of its own.
"""

from dataclasses import replace

from millrace.lake.changes import declaration
from millrace.lake.decide import Known
from millrace.lake.index import KeyIndex
from millrace.lake.log import Conflict, Snapshot, checkpoint_if_due, commit, refresh
from millrace.lake.schema import TableSpec
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.store import Store
from millrace.lake.tombstones import MOST_MERGED_ROWS, Merged, Tombstones, due, merge

MOST_ATTEMPTS = 100
# So many chunk ids cost next to nothing; forgetting some would only cost a commit.
MOST_CHUNK_IDS = 20_000


def purge(store: Store, spec: TableSpec, safe_version: int = NO_FLOOR) -> None:
    """Until nothing is worth it. No write at or below the safe version is still on its way."""
    snapshot, index, tombstones = Snapshot(), KeyIndex(store, spec.key), Tombstones(store)
    merged: dict[tuple[str, ...], Merged] = {}
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        before = TableState.of(snapshot.metadata)
        if spec.key:
            known = Known(store, snapshot, index, tombstones, before.tombstones, before.floor)
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
    known: Known, state: TableState, safe_version: int, merged: dict[tuple[str, ...], Merged]
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
    # A table that knows no definitions holds rows of other tables' imports: their versions do not order it.
    if state.definition is None:
        return state
    remembered = sum(state.floor < known.version <= safe_version for known in snapshot.transactions.values())
    return replace(state, floor=safe_version) if remembered > MOST_CHUNK_IDS else state
