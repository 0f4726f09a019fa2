"""Upkeep of a table. Compaction: small files and files with many deleted rows in, larger files with the same live rows out.
Readers see no change. Rows that are deleted during the rewrite are deleted in the new file too. If a file disappears
meanwhile, the attempt ends.

Purging shrinks what a table keeps only to refuse late writes: it merges tombstone files, and drops tombstones and chunk ids
that no late write can meet any more. The floor rises to their versions. It is a commit of its own."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from millrace.lake.actions import AddFile, remove_action
from millrace.lake.changes import declaration, file_actions, unmistakable
from millrace.lake.checkpointing import checkpoint_if_due
from millrace.lake.core_share import CoreShare
from millrace.lake.decide import Dead, TableContents, as_add
from millrace.lake.deletion_vectors import dead_positions
from millrace.lake.index import KeyIndex
from millrace.lake.log import Conflict, Snapshot, commit, load, refresh
from millrace.lake.read import read_live_groups
from millrace.lake.schema import TableSpec, arrow_schema
from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.store import Store
from millrace.lake.stream_file import stream_data_file
from millrace.lake.tombstones import MOST_MERGED_ROWS, MergedTombstones, Tombstones, due, merge

WORN_SHARE = 0.25
# Readers open files of about this size best.
MOST_BYTES = 128 << 20
# A rewrite holds in memory: one row group, and the key hashes of all rows, about 60 bytes each.
MOST_ROWS = 4_000_000
# Files below a size, and how many of them are left alone. Merged files belong to a later tier, or to none. So a row is merged
# three times at most, however much a table grows.
SMALL_BYTES, MOST_SMALL_FILES = 1 << 20, 50
LARGER_TIERS = ((8 << 20, 7), (64 << 20, 7))
MOST_ATTEMPTS = 100
COMPACTED_PREFIX = "compacted"

Rewrite = tuple[AddFile, ...]
"""Files, in their state at planning time, whose live rows become one file."""
# This many chunk ids cost nearly nothing. Dropping some would cost a commit.
MOST_CHUNK_IDS = 20_000


def plan(snapshot: Snapshot) -> list[Rewrite]:
    """The files that are worth a rewrite: many of one tier, and files with more than a quarter deleted."""
    known = [file for file in snapshot.files.values() if file.rows > 0]
    worn = [file for file in known if file.dead_rows > WORN_SHARE * file.rows]
    rewrites: list[Rewrite] = []
    taken: set[str] = set()
    smallest = 0
    for limit, most in ((SMALL_BYTES, MOST_SMALL_FILES), *LARGER_TIERS):
        tier = [file for file in known if smallest <= _live_bytes(file) < limit and file.live_rows < MOST_ROWS // 2]
        if len(tier) > most:
            rewrites += [group for group in _grouped(tier) if len(group) > 1]
            taken.update(file.path for group in rewrites for file in group)
        smallest = limit
    return rewrites + _grouped(file for file in worn if file.path not in taken)


def _live_bytes(file: AddFile) -> float:
    return file.size * file.live_rows / file.rows


def run(store: Store, spec: TableSpec, rewrite: Rewrite, share: CoreShare | None = None) -> int | None:
    """The version that exchanged the files; None if another writer removed one of them first."""
    snapshot = load(store)
    planned = {file.path: dead_positions(store, file) for file in rewrite}
    staged = _rewritten(store, spec, snapshot, rewrite, planned, share or CoreShare())
    for _ in range(MOST_ATTEMPTS):
        snapshot = refresh(store, snapshot)
        dead = _died_meanwhile(store, snapshot, rewrite, planned)
        if dead is None:
            return None
        try:
            return _exchange(store, spec, snapshot, rewrite, staged, dead)
        except Conflict:
            continue
    return None


def _rewritten(
    store: Store, spec: TableSpec, snapshot: Snapshot, rewrite: Rewrite, planned: dict[str, BitMap], share: CoreShare
) -> StagedFile:
    # Written in the table's present shape: old files may hold dropped columns and narrower types.
    schema = arrow_schema(snapshot.metadata.schema_json) if snapshot.metadata else pa.schema([])

    def tables() -> Iterator[pa.Table]:
        for file in rewrite:
            for group in read_live_groups(store, file, planned[file.path], schema):
                yield group
                share.rest()

    # If another engine wrote a key twice, both rows stay until a newer one comes.
    return stream_data_file(store, schema, tables(), spec.key, COMPACTED_PREFIX)[0]


def _exchange(
    store: Store, spec: TableSpec, snapshot: Snapshot, rewrite: Rewrite, staged: StagedFile, dead: Dead
) -> int:
    losers = {staged.path: dead} if len(dead) else {}
    actions = [remove_action(snapshot.files[file.path], data_change=False) for file in rewrite]
    actions += file_actions(store, snapshot, spec, [as_add(staged)], losers, data_change=False)
    committed = commit(store, snapshot, unmistakable(snapshot, [*declaration(snapshot, spec, actions), *actions]))
    return checkpoint_if_due(store, committed, spec.chunk_memory, spec.log_retention).version


def _died_meanwhile(store: Store, snapshot: Snapshot, rewrite: Rewrite, planned: dict[str, BitMap]) -> Dead | None:
    """Positions in the new file of rows that were deleted since they were read. None if a file is gone, or has rows
    again that were left out: another engine may have restored an earlier version."""
    died, offset = [np.empty(0, dtype=np.uint32)], 0
    for file in rewrite:
        current = snapshot.files.get(file.path)
        if current is None:
            return None
        if current.deletion_vector != file.deletion_vector:
            now_dead = dead_positions(store, current)
            if planned[file.path] - now_dead:
                return None
            newly = np.asarray((now_dead - planned[file.path]).to_array())
            skipped = np.searchsorted(np.asarray(planned[file.path].to_array()), newly)
            died.append((newly - skipped + offset).astype(np.uint32))
        offset += file.rows - len(planned[file.path])
    return np.concatenate(died)


def _grouped(files: Iterable[AddFile]) -> list[Rewrite]:
    groups: list[list[AddFile]] = []
    rows, size = 0, 0.0
    for file in files:
        rows, size = rows + file.live_rows, size + _live_bytes(file)
        if not groups or rows > MOST_ROWS or size > MOST_BYTES:
            groups.append([])
            rows, size = file.live_rows, _live_bytes(file)
        groups[-1].append(file)
    return [tuple(group) for group in groups]


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
    known = snapshot.transactions.columns()
    if state.definition is None:
        # It holds rows of other tables' imports, whose versions have no common order. Versions are microseconds: what was
        # recorded before the oldest open import began belongs to an import that is over.
        settled_ms = safe_version // 1000
        remembered = np.count_nonzero((known.updated > state.settled_ms) & (known.updated <= settled_ms))
        return replace(state, settled_ms=settled_ms) if remembered > MOST_CHUNK_IDS else state
    remembered = np.count_nonzero((known.versions > state.floor) & (known.versions <= safe_version))
    return replace(state, floor=safe_version) if remembered > MOST_CHUNK_IDS else state
