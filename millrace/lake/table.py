"""A Delta table that keeps the newest row of each key: staged files in, committed versions out.
Any number of handles, threads and processes may apply to one table; refuses tables whose protocol it does not know.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace.lake.actions import Action
from millrace.lake.changes import declaration, file_actions
from millrace.lake.compact import plan, run
from millrace.lake.decide import Decision, as_add, decide_keyed, decide_keyless
from millrace.lake.index import KeyIndex
from millrace.lake.log import Conflict, Snapshot, checkpoint_if_due, commit, refresh
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store
from millrace.model.errors import Corrupt, Unavailable

# Key files merged within a commit; larger merges wait for `maintain`, so that no commit pays for them.
INLINE_MERGE_ROWS = 50_000
# A merge holds its keys in memory, 28 bytes each; larger key files stay apart and are looked up one by one.
MOST_MERGED_ROWS = 8_000_000
MOST_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Applied:
    """What one `apply` did. `version` is the table version in which all of its files are reflected."""

    version: int
    rows_added: int = 0
    rows_replaced: int = 0
    rows_beaten: int = 0
    attempts: int = 1


class LakeTable:
    """A handle worth keeping: it remembers the snapshot and the open key files. Safe to share between threads."""

    def __init__(self, store: Store, spec: TableSpec) -> None:
        self.store = store
        self.spec = spec
        self._snapshot = Snapshot()
        self._index = KeyIndex(store, spec.key)
        self._lock = threading.Lock()

    @classmethod
    def open(cls, root: Path, spec: TableSpec, durable: bool = False) -> "LakeTable":
        """Reads nothing yet; the first `apply` creates the table if there is none."""
        return cls(Store(root, durable), spec)

    def redeclare(self, spec: TableSpec) -> None:
        """From the next commit on the table has the spec's added columns."""
        with self._lock:
            self.spec = spec

    def snapshot(self) -> Snapshot:
        """The newest committed snapshot."""
        with self._lock:
            self._snapshot = refresh(self.store, self._snapshot)
            return self._snapshot

    def apply(self, files: Sequence[StagedFile]) -> Applied:
        """Commits staged files in one version, so that every reader sees each key once, at its greatest version.

        1. Refresh the snapshot.
        2. Leave out files that are live and, without a key, chunks that are recorded.
        3. Look the staged keys up in the index.
        4. Decide by (version, position) which rows lose, staged ones and live ones.
        5. Mark the losers (or rewrite without them) and list the actions.
        6. Claim the next version; if another writer was faster, start again at 1.
        With no files it creates the table, or adds the spec's new columns, if that is still to be done.
        """
        with self._lock:
            for attempt in range(1, MOST_ATTEMPTS + 1):
                self._snapshot = refresh(self.store, self._snapshot)  # 1
                decision = self._decide(files)  # 2, 3, 4
                actions = self._actions(decision)  # 5
                if not actions:
                    return _applied(self._snapshot, decision, attempt)
                try:
                    self._snapshot = commit(self.store, self._snapshot, actions)  # 6
                except Conflict:
                    continue
                self._after_commit()
                return _applied(self._snapshot, decision, attempt)
        raise Unavailable(
            f"{MOST_ATTEMPTS} commits to {self.store.root} in a row met another writer.", remedy="Try again."
        )

    def maintain(self) -> None:
        """Compacts what is worth it and merges key files, whatever their size; other calls go on meanwhile."""
        for rewrite in plan(self.snapshot()):
            run(self.store, self.spec, rewrite)
        if self.spec.key:
            KeyIndex(self.store, self.spec.key).tidy(self.snapshot(), MOST_MERGED_ROWS)
            with self._lock:
                self._index.reopen()

    def _decide(self, files: Sequence[StagedFile]) -> Decision:
        if self.spec.key:
            return decide_keyed(self.store, self._snapshot, self._index, files)
        return decide_keyless(self._snapshot, files)

    def _actions(self, decision: Decision) -> list[Action]:
        for file in decision.added:
            self._refuse_unless_whole(file)
        added = [as_add(file) for file in decision.added]
        changes = file_actions(self.store, self._snapshot, self.spec, added, decision.dead)
        changes += [transaction.to_json() for transaction in decision.transactions]
        return [*declaration(self._snapshot, self.spec, changes), *changes]

    def _refuse_unless_whole(self, file: StagedFile) -> None:
        # Readers trust the size in the log: with a wrong one some return fewer rows and no error.
        if not self.store.exists(file.path) or self.store.size(file.path) != file.size:
            raise Corrupt(
                f"Staged file {self.store.path(file.path)} is not there with its {file.size} bytes.",
                remedy="Stage its chunks again.",
            )

    def _after_commit(self) -> None:
        self._snapshot = checkpoint_if_due(self.store, self._snapshot, self.spec.chunk_memory, self.spec.log_retention)
        if self.spec.key:
            # The commit stands; what a full disk keeps from being merged now is merged later.
            with suppress(OSError):
                self._index.tidy(self._snapshot, INLINE_MERGE_ROWS, in_passing=True)


def _applied(snapshot: Snapshot, decision: Decision, attempts: int) -> Applied:
    staged_rows = sum(file.rows for file in decision.added)
    beaten = sum(len(decision.dead.get(file.path, ())) for file in decision.added)
    return Applied(
        version=snapshot.version,
        rows_added=staged_rows - beaten,
        rows_replaced=decision.replaced,
        rows_beaten=decision.beaten,
        attempts=attempts,
    )
