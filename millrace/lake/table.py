"""A Delta table that keeps the newest row of each key: staged files in, committed versions out.
Any number of handles, threads and processes may write to one table. Refuses tables with an unknown protocol.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from millrace.lake.batch import DefinedFile, Definitions, WriteBatch, forget_settled
from millrace.lake.checkpointing import checkpoint_if_due
from millrace.lake.compact import plan, purge, run
from millrace.lake.core_share import CoreShare
from millrace.lake.foreign import refuse_unwritable
from millrace.lake.index import KeyIndex
from millrace.lake.log import Conflict, Snapshot, commit, refresh
from millrace.lake.mending import mend
from millrace.lake.plan import Handle, Planner
from millrace.lake.schema import TableSpec, declared_columns
from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.store import Store
from millrace.lake.target import Lineage
from millrace.lake.tombstones import Tombstones
from millrace.model.errors import Unavailable
from millrace.model.table import Definition

# Limit for merging key files within a commit. Larger merges wait for `maintain`.
INLINE_MERGE_ROWS = 50_000
# A merge reads and writes 28 bytes for each key. So many keys, eight files of the fifth level, take minutes.
MOST_MERGED_ROWS = 1 << 27
MOST_ATTEMPTS = 100


class LakeTable:
    """A handle to a table, which the first write creates. Keep it: it caches the snapshot and open key files. Safe to share
    between threads."""

    def __init__(self, store: Store, spec: TableSpec, definitions: Definitions | None = None) -> None:
        self.store = store
        self._lineage = Lineage(definitions)
        self._snapshot = Snapshot()
        self._handle = Handle(spec, KeyIndex(store, spec.key), Tombstones(store))
        self._lock = threading.Lock()

    @property
    def spec(self) -> TableSpec:
        """The table's declaration since it was opened or prepared."""
        return self._handle.spec

    @property
    def key_pages_read(self) -> int:
        """Pages of merged key files that this handle has read, each counted once."""
        return self._handle.index.pages_read

    def snapshot(self) -> Snapshot:
        """The newest committed snapshot."""
        with self._lock:
            self._snapshot = refresh(self.store, self._snapshot)
            return self._snapshot

    def apply(self, files: Sequence[StagedFile], *, floor: int = NO_FLOOR) -> Snapshot:
        """Commits staged files, and with `floor` a truncation at that version, in one version of the table.
        Without files it creates the table or adds the spec's new columns, if necessary."""
        return self.write(WriteBatch(tuple(DefinedFile(file) for file in files), floor))

    def prepare(self, definition: Definition) -> Snapshot:
        """Gives the table the shape of a definition, unless it has the shape of a newer one."""
        return self.write(WriteBatch(definition=definition))

    def write(self, batch: WriteBatch) -> Snapshot:
        """Commits a batch in one version, so that readers see each key once, with its greatest version. Returns the snapshot
        that contains all of it.

        1. Refresh the snapshot.
        2. Find the table's new shape, and rewrite staged files of an older shape.
        3. Leave out files that are live and, without a key, chunks that are recorded.
        4. Look up the staged keys among live rows and tombstones. Decide by version which rows and deletes lose.
        5. Mark the losing rows (or rewrite files without them), rewrite files of an older shape, and list the actions.
        6. Claim the next version; if another writer was faster, start again at 1.
        """
        planner = Planner(self.store, batch, self._lineage)
        with self._lock:
            for _ in range(MOST_ATTEMPTS):
                self._snapshot = refresh(self.store, self._snapshot)  # 1
                actions, handle = planner.plan(self._snapshot, self._handle)  # 2, 3, 4, 5
                if not actions:
                    return self._snapshot
                try:
                    self._snapshot = commit(self.store, self._snapshot, actions)  # 6
                except Conflict:
                    continue
                self._handle = handle
                self._after_commit()
                return self._snapshot
        raise Unavailable(
            f"{MOST_ATTEMPTS} commits to {self.store.where} in a row met another writer.", remedy="Try again."
        )

    def maintain(self, safe_version: int = NO_FLOOR, share: CoreShare | None = None) -> None:
        """Compacts data files, merges key files of any size, and drops what is useless once no write at or below the safe
        version can come. Other calls continue meanwhile."""
        snapshot = self.snapshot()
        refuse_unwritable(snapshot, self.spec)
        spec = _recorded(snapshot, self.spec)
        mend(self.store, spec)
        for rewrite in plan(self.snapshot()):
            run(self.store, spec, rewrite, share)
        if spec.key:
            KeyIndex(self.store, spec.key).tidy(self.snapshot(), MOST_MERGED_ROWS, share=share)
            with self._lock:
                self._handle.index.reopen()
        purge(self.store, spec, safe_version)
        forget_settled(self.store, safe_version)

    def _after_commit(self) -> None:
        spec = self._handle.spec
        self._snapshot = checkpoint_if_due(self.store, self._snapshot, spec.chunk_memory, spec.log_retention)
        if spec.key:
            # The commit is valid. If the disk is full, the merge happens later.
            with suppress(OSError):
                self._handle.index.tidy(self._snapshot, INLINE_MERGE_ROWS, in_passing=True)


def _recorded(snapshot: Snapshot, spec: TableSpec) -> TableSpec:
    """The spec with the columns and the key of this snapshot's files."""
    key = TableState.of(snapshot.metadata).key
    if key is None or snapshot.metadata is None:
        return spec
    return replace(spec, schema=declared_columns(snapshot.metadata.schema_json), key=key)
