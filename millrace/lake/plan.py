"""A batch and the table's state in, the actions of one commit out. Rewrites files whose rows must change their shape; commits
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import Action, AddFile, Transaction, now_ms, remove_action
from millrace.lake.batch import DefinedFile, WriteBatch
from millrace.lake.change_files import ChangeFiles, CommitChanges
from millrace.lake.changes import Rewrites, declaration, file_actions, next_schema
from millrace.lake.conform import opened
from millrace.lake.data_files import data_file
from millrace.lake.decide import Decision, TableContents, as_add, decide_keyed, decide_keyless
from millrace.lake.feed import has_feed
from millrace.lake.foreign import refuse_unwritable
from millrace.lake.index import KeyIndex
from millrace.lake.log import Snapshot
from millrace.lake.long_work import announce
from millrace.lake.overlay import Overlay
from millrace.lake.read import rows_up_to
from millrace.lake.reshape import Reshape
from millrace.lake.schema import TableSpec
from millrace.lake.sidecar import StagedFile, write_data_file
from millrace.lake.state import NO_FLOOR, TableState
from millrace.lake.statistics import file_statistics
from millrace.lake.store import Store
from millrace.lake.target import Lineage, TableTarget
from millrace.lake.tombstones import Tombstones, due, merge
from millrace.model.errors import Corrupt

ALIGNED_PREFIX = "aligned"
# Limit for merging tombstone files within a commit. Larger merges wait for `maintain`.
INLINE_MERGE_ROWS = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """The state that a table's handle keeps between commits."""

    spec: TableSpec
    index: KeyIndex
    tombstones: Tombstones


class Planner:
    """Plans one write, in several attempts if necessary. Files rewritten in one attempt are used in the next."""

    def __init__(self, store: Store, batch: WriteBatch, lineage: Lineage) -> None:
        self._store = store
        self._batch = batch
        named = (batch.definition, *(delivery.definition for delivery in batch.files))
        self._wanted = max((known for known in named if known is not None), key=lambda known: known.age, default=None)
        self._lineage = lineage
        self._aligned: dict[tuple[str, str], StagedFile] = {}
        self._anew: dict[tuple[str | None, str, str | None], Rewrites] = {}
        self._change_files = ChangeFiles(store)

    def plan(self, snapshot: Snapshot, handle: Handle) -> tuple[list[Action], Handle]:
        """The actions of the commit, and the state to use after they are committed."""
        state = TableState.of(snapshot.metadata)
        target = self._lineage.target(snapshot, handle.spec, self._wanted)
        if not target.begins:
            refuse_unwritable(snapshot, target.spec, self._lineage.recorded_spec(snapshot))
        base, following = snapshot, replace(handle, spec=target.spec)
        if target.begins:
            base = replace(snapshot, files=Overlay())
            handle = following = Handle(target.spec, KeyIndex(self._store, target.spec.key), handle.tombstones)
            state = replace(state, tombstones=())
        elif target.spec.key != handle.spec.key:
            following = replace(following, index=KeyIndex(self._store, target.spec.key))
        floor = max(state.floor, self._batch.floor, target.floor)
        known = TableContents(self._store, base, handle.index, handle.tombstones, state.tombstones, floor)
        # The feed of a table that does not declare it belongs to another engine.
        feed = target.spec.change_feed or (has_feed(base.metadata) and not state.feed and not target.begins)
        decision = self._decide(known, target, feed)
        actions = [remove_action(file) for file in snapshot.files.values()] if target.begins else []
        added, anew = self._added(decision), self._rewrites(known, target)
        actions += file_actions(
            self._store, base, target.spec, added, decision.dead, anew=anew, schema_json=target.schema_json
        )
        if feed:
            if target.begins or self._batch.floor > NO_FLOOR:
                announce(snapshot.live_rows)
            schema = target.schema_json or next_schema(snapshot, target.spec)
            changes = CommitChanges(self._store, snapshot, schema, added, decision, anew, target.begins)
            actions += self._change_files.actions(changes)
        actions += [transaction.to_json() for transaction in decision.transactions]
        state = replace(
            state,
            definition=target.definition.fingerprint if target.definition else state.definition,
            key=target.spec.key if target.definition else state.key,
            floor=floor,
            tombstones=self._tombstones(known, decision),
            feed=target.spec.change_feed,
        )
        declared = declaration(snapshot, target.spec, actions, state, target.schema_json, begins=target.begins)
        return [*declared, *actions], following

    def _decide(self, known: TableContents, target: TableTarget, feed: bool) -> Decision:
        files = [file for delivery in self._batch.files if (file := self._fitting(delivery, target)) is not None]
        if target.spec.key:
            decision = decide_keyed(known, files, tell_updates=feed)
        else:
            decision = decide_keyless(known.snapshot, files, known.floor)
        for file in decision.added:
            self._refuse_unless_whole(file)
        if self._batch.floor > NO_FLOOR:
            for gone, positions in rows_up_to(self._store, known.snapshot, self._batch.floor).items():
                decision.kill(gone, positions)
        decision.transactions += [
            Transaction(publication.transaction_id, publication.version, now_ms())
            for publication in self._batch.publications
            if publication.transaction_id not in known.snapshot.transactions
        ]
        return decision

    def _fitting(self, delivery: DefinedFile, target: TableTarget) -> StagedFile | None:
        """The file's rows in the table's shape; None if they belong to an earlier generation."""
        file, definition = delivery.file, delivery.definition
        if definition is None or target.definition is None or definition.fingerprint == target.definition.fingerprint:
            return file
        if definition.generation < target.definition.generation:
            return None
        if not file.rows:
            return file
        this = file.path, target.definition.fingerprint
        if this not in self._aligned:
            self._aligned[this] = self._align(
                file, self._lineage.reshape(definition, target.definition), target.spec.key
            )
        return self._aligned[this]

    def _align(self, file: StagedFile, reshape: Reshape, key: Sequence[str]) -> StagedFile:
        self._refuse_unless_whole(file)
        try:
            with opened(self._store.whole(file.path)) as parquet:
                if not reshape.is_needed(parquet.schema_arrow):
                    return file
                rows = reshape.rows(parquet.read())
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self._not_staged(file, f"is damaged: {error}") from error
        staged = write_data_file(self._store, rows, key, ALIGNED_PREFIX, file.chunks)
        return replace(staged, tombstones=file.tombstones, deleted_rows=file.deleted_rows)

    def _refuse_unless_whole(self, file: StagedFile) -> None:
        # Readers trust the size in the log. With a wrong size some return fewer rows without an error.
        try:
            size = self._store.size(file.path)
        except FileNotFoundError:
            size = None
        if size != file.size:
            raise self._not_staged(file, f"is not there with its {file.size} bytes")

    def _not_staged(self, file: StagedFile, why: str) -> Corrupt:
        return Corrupt(f"Staged file {self._store.path(file.path)} {why}.", remedy="Stage its chunks again.")

    def _added(self, decision: Decision) -> list[AddFile]:
        return [as_add(self._with_statistics(file)) for file in decision.added]

    def _rewrites(self, known: TableContents, target: TableTarget) -> Rewrites:
        if target.reshape is None or target.definition is None:
            return Rewrites()
        # Another writer may have changed the table's shape since the last attempt. Then earlier rewrites are useless.
        way = TableState.of(known.snapshot.metadata).definition, target.definition.fingerprint, target.schema_json
        anew = self._anew.setdefault(way, Rewrites(rows=target.rows))
        anew = replace(anew, paths=self._misshapen(known.snapshot, target))
        announce(sum(known.snapshot.files[path].rows for path in anew.paths))
        return anew

    def _with_statistics(self, file: StagedFile) -> StagedFile:
        """A file that came here sealed, or from another table, has none yet."""
        if file.stats is not None or not self._store.may_tell(file.path):
            return file
        return replace(file, stats=file_statistics(pq.read_metadata(self._store.source(file.path))))

    def _misshapen(self, snapshot: Snapshot, target: TableTarget) -> frozenset[str]:
        return frozenset(path for path, file in snapshot.files.items() if target.is_misshapen(self._stored(file)))

    def _stored(self, file: AddFile) -> pa.Schema:
        with data_file(self._store, file) as parquet:
            return parquet.schema_arrow

    def _tombstones(self, known: TableContents, decision: Decision) -> tuple[str, ...]:
        """The tombstone files to list from now on. Many small files are merged into one."""
        names = tuple(chain(known.listed, decision.tombstones))
        while decision.tombstones and (together := due(known.tombstones.listed(names), INLINE_MERGE_ROWS)):
            merged = merge(self._store, together, known.floor, known.is_useless())
            replaced = {keys.name for keys in together}
            names = (*(name for name in names if name not in replaced), *((merged.name,) if merged.name else ()))
        return names
