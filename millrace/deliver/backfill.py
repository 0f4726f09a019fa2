"""Lets a target that was added to a table with rows catch up: step by step, between deliveries, and again after a crash.

The rows come from the log, or else from the live rows of the Delta table, as items of the target's queue. Their files are
pinned, not read: memory does not grow with the table. An item that comes twice changes nothing, because every row carries its
version, and rows without a key their chunk."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from pyroaring import BitMap

from millrace.deliver.queue import Queue, where_staged
from millrace.exchange.places import Places
from millrace.exchange.queues import Members, ParkedRow, Queues
from millrace.lake.batch import Publication
from millrace.lake.conform import UNVERSIONED
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.foreign import refuse_unreadable
from millrace.lake.log import Snapshot, load
from millrace.lake.read import read_in_shape, row_count
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.model.chunk import PREPARE, ROWS
from millrace.model.queues import (
    DONE,
    FROM_DELTA,
    FROM_LOG,
    GIVEN_UP,
    IMPOSSIBLE,
    UNDER_WAY,
    WANTED,
    Backfill,
    Member,
    QueueKey,
    QueueRecord,
    own_queue,
)
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition
from millrace.observe import log
from millrace.sink.contract import StagedGroup
from millrace.sink.delta.places import is_kept_here

# Records of the log that are searched for the beginning of a table; beyond, its rows are read from its Delta table.
MOST_LOGGED = 100_000
NOWHERE = "No other sink keeps the table's rows where they can be read; declare delta beside it, or import them again."
Known = Callable[[str], Definition]


class Backfiller:
    def __init__(
        self, places: Places, queues: Queues, definitions: Known, log: Callable[[], Iterable[StagedGroup]] = tuple
    ) -> None:
        """`log` is what is retained of it, asked for when some target has to catch up."""
        self._places = places
        self._queues = queues
        self._definitions = definitions
        self._log = log
        self._looked: set[object] = set()

    def note_published(self, key: QueueKey, group: StagedGroup) -> None:
        """An atomic import that began before the target was added is published now: its rows passed before."""
        self._change(key, lambda member: member.wanting(group.import_id))

    def step(self, queue: Queue, record: QueueRecord) -> bool:
        """1. Wait until the source holds all that the target missed. 2. Pin it into the queue. 3. See it delivered.

        True when nothing is left to do."""
        member = record.member
        backfill = None if member is None else member.backfill
        if member is None or backfill is None:
            return True
        if backfill.state == WANTED:
            member = self._begin(queue, member, backfill)
        elif backfill.state == UNDER_WAY and not any(item.is_backfill for item in queue.items()):
            is_given_up = record.waiver.below > (backfill.began or 0.0) * 1e6
            member = self._note(queue.key, backfill, state=GIVEN_UP if is_given_up else DONE, ended=time.time())
        return member is None or not member.is_catching_up

    def _begin(self, queue: Queue, member: Member, wanted: Backfill) -> Member | None:
        now, root = time.time(), self._places.table(queue.key.tenant, queue.key.table)
        logged = self._from_log(queue, member)
        if logged is not None:
            return self._note(queue.key, wanted, state=UNDER_WAY, source=FROM_LOG, rows=logged, began=now)
        if self._queues.backlog(own_queue(DELTA_KIND, queue.key.tenant, queue.key.table)).waiting:
            # The table lacks rows that the target has missed, although it may have the target's definition.
            return member
        if not is_kept_here(self._definitions(member.definition)):
            return self._note(queue.key, wanted, state=IMPOSSIBLE, reason=NOWHERE, began=now, ended=now)
        # A file that is gone was rewritten after the snapshot was taken: the next look finds what it became.
        with suppress(FileNotFoundError):
            snapshot = ready_snapshot(root, member, self._definitions)
            if snapshot is not None:
                with self._queues.pinning:
                    self._queues.park(copies_of_table(root, snapshot, queue, self._definitions))
                rows = snapshot.live_rows
                return self._note(queue.key, wanted, state=UNDER_WAY, source=FROM_DELTA, rows=rows, began=now)
        return member

    def _from_log(self, queue: Queue, member: Member) -> int | None:
        """The number of rows that the log had. It is read once for each wish: what it does not hold then, it will not hold
        later."""
        wish = queue.key, member.added, member.backfill
        if wish in self._looked:
            return None
        groups = _logged(self._log(), queue.key, member, self._definitions)
        # Rows of the log whose files are gone are read from the Delta table.
        with suppress(FileNotFoundError), self._queues.pinning:
            if groups is not None:
                self._queues.park(
                    [queue.row_of(group, where_staged(self._places, group), is_backfill=True) for group in groups]
                )
                return sum(group.file.rows for group in groups if group.file)
        # Only now: a look that failed, because the log or the store was away, is repeated.
        self._looked.add(wish)
        return None

    def _note(self, key: QueueKey, seen: Backfill, **news: object) -> Member | None:
        """Unless more was wanted meanwhile: then it begins again."""

        def change(member: Member) -> Member:
            return replace(member, backfill=replace(seen, **news)) if member.backfill == seen else member  # type: ignore[arg-type]

        log("sink_backfill", queue=str(key), state=str(news.get("state")), source=str(news.get("source")))
        return self._change(key, change)

    def _change(self, key: QueueKey, change: Callable[[Member], Member]) -> Member | None:
        def changed(members: Members) -> Members:
            return {key.target: change(members[key.target])} if key.target in members else {}

        return self._queues.change_members(key.kind, key.tenant, key.table, changed).get(key.target)


def ready_snapshot(root: Path, member: Member, known: Known) -> Snapshot | None:
    """The Delta table, once it holds everything from before the target was added; None until then.

    The Delta sink and the target's query read the same records in the same order. When the table has the definition that
    added the target, it holds all earlier records, and all later ones come to the queue."""
    snapshot = load(Store(root))
    refuse_unreadable(snapshot, root.name)
    fingerprint = TableState.of(snapshot.metadata).definition
    if fingerprint is None or known(fingerprint).age < member.added:
        return None
    published = (
        {Publication(import_id, 0).transaction_id for import_id in member.backfill.needs} if member.backfill else ()
    )
    return snapshot if set(published) <= snapshot.transactions.keys() else None


def copies_of_table(root: Path, snapshot: Snapshot, queue: Queue, known: Known) -> list[ParkedRow]:
    """Rows for every file of the snapshot. Raises FileNotFoundError where a file has been rewritten meanwhile: then the
    snapshot is too old."""
    state = TableState.of(snapshot.metadata)
    assert state.definition is not None
    definition, store, rows = known(state.definition), Store(root), []
    remembered = {
        (done.app_id.rpartition("/")[0], done.version): done.app_id for done in snapshot.transactions.values()
    }
    for file in snapshot.files.values():
        dead = load_vector(store, file.deletion_vector) if file.deletion_vector else BitMap()
        name = hashlib.blake2b(file.path.encode(), digest_size=12).hexdigest()
        live_rows = row_count(store, file) - file.dead_rows
        parts = [_FilePart((StagedChunk(f"backfill-{name}/0", 0, live_rows, 0),), dead)]
        if not definition.table.primary_key:
            # Another engine names no import for the rows that it adds.
            columns = read_in_shape(store, snapshot, file, BitMap(), ["_import", "_version"])
            cells = pl.DataFrame(columns).with_columns(
                pl.col("_import").fill_null(f"backfill-{name}"), pl.col("_version").fill_null(UNVERSIONED)
            )
            parts = _apart(cells, dead, remembered)
        for number, part in enumerate(parts):
            staged = StagedFile(file.name, file.size, sum(chunk.rows for chunk in part.chunks), None, part.chunks)
            group = StagedGroup(definition.tenant, definition.table.name, definition.fingerprint, staged, ())
            gone = part.dead.serialize() if part.dead else None
            row = queue.row_of_copy(f"{name}-{number}" if number else name, group, root, gone, max(state.floor, 0))
            # The parts of a file share its pin.
            rows.append(replace(row, size=0) if number else row)
    return rows


def _logged(groups: Iterable[StagedGroup], key: QueueKey, member: Member, known: Known) -> list[StagedGroup] | None:
    """What the log holds of the table from before the target was added; None where it does not reach back to the table's
    beginning."""
    found: list[StagedGroup] = []
    is_whole = False
    for number, group in enumerate(groups):
        if number >= MOST_LOGGED:
            return None
        if (group.tenant, group.table) != (key.tenant, key.table):
            continue
        definition = known(group.definition)
        if member.takes_late(definition):
            is_whole = is_whole or (group.kind == PREPARE and definition.previous is None)
            if group.kind != PREPARE and not (group.kind == ROWS and group.file is None):
                found.append(group)
    return found if is_whole else None


@dataclass(frozen=True, slots=True)
class _FilePart:
    """Some chunks of a file, and the positions of the file that are not their rows."""

    chunks: tuple[StagedChunk, ...]
    dead: BitMap


def _apart(cells: pl.DataFrame, dead: BitMap, remembered: Mapping[tuple[str, int], str]) -> list[_FilePart]:
    """`cells` are the import and the version of each row.

    Targets recognise rows without a key by their chunks. As long as the table remembers the names of its chunks, they keep
    these names, so that a chunk that also comes by itself is recognised.

    A chunk is what an import wrote at a version; one that is dead here lives in another file. A replay has the versions of
    the import it replays, and targets recognise chunks by their versions: two chunks of one version go to separate parts."""
    rows = cells.with_row_index("place")
    live = rows.filter(~pl.col("place").is_in(np.asarray(dead.to_array())))
    chunks = live.group_by("_version", "_import").agg("place").sort("_version", "_import")
    nth = pl.int_range(pl.len()).over("_version")
    parts = []
    for some in chunks.with_columns(nth=nth).partition_by("nth", maintain_order=True, include_key=False):
        named = tuple(
            StagedChunk(remembered.get((of, version), f"{of}/backfill@{version}"), 0, len(places), version)
            for version, of, places in some.iter_rows()
        )
        parts.append(_FilePart(named, BitMap(range(rows.height)) - BitMap(some["place"].explode().to_numpy())))
    return parts
