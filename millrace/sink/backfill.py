"""What was in a table before a target came to it: the log, or the Delta table's live rows in, items of its queue out.

The files are linked, not read: memory does not grow with the table, and the couriers deliver them like anything else. Taken
twice they change nothing, because every row carries its version, and rows without a key their chunk."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile
from millrace.lake.batch import Publication, age
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.log import Snapshot, load
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.model.chunk import PREPARE, ROWS
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition
from millrace.sink.contract import Group
from millrace.sink.parking import Queue
from millrace.sink.roster import Member

# Records looked through for a table that is younger than the log; beyond, its rows are read from another sink.
MOST_LOGGED = 100_000
Known = Callable[[str], Definition]


def is_kept_in_delta(definition: Definition) -> bool:
    return any(target.kind == DELTA_KIND for target in definition.table.targets)


def ready_snapshot(root: Path, member: Member, known: Known) -> Snapshot | None:
    """The Delta table, once it holds everything that came before the target did; None until then.

    Its records and those of the target's query are the same, in the same order: when the table has the definition that made
    the target its own, all that lies before is in it, and all that lies behind comes to the queue."""
    snapshot = load(Store(root))
    fingerprint = TableState.of(snapshot.metadata).definition
    if fingerprint is None or age(known(fingerprint)) < member.added:
        return None
    published = (
        {Publication(import_id, 0).transaction_id for import_id in member.backfill.needs} if member.backfill else ()
    )
    return snapshot if set(published) <= snapshot.transactions.keys() else None


def copy_table(root: Path, snapshot: Snapshot, queue: Queue, known: Known) -> int:
    """Puts every file of the snapshot into the queue; the number of live rows. Raises FileNotFoundError where a file has
    been rewritten meanwhile: then the snapshot is too old."""
    state = TableState.of(snapshot.metadata)
    assert state.definition is not None
    definition, store = known(state.definition), Store(root)
    chunks_of = (
        {} if definition.table.primary_key else {done.version: done.app_id for done in snapshot.transactions.values()}
    )
    for file in snapshot.files.values():
        name = hashlib.blake2b(file.path.encode(), digest_size=12).hexdigest()
        chunks = _chunks(root, file, name, None if definition.table.primary_key else chunks_of)
        staged = StagedFile(file.name, file.size, file.live_rows, None, chunks)
        group = Group(definition.tenant, definition.table.name, definition.fingerprint, staged, ())
        dead = load_vector(store, file.deletion_vector).serialize() if file.deletion_vector else None
        queue.put_copied(name, group, root, dead, max(state.floor, 0))
    return snapshot.live_rows


def put_logged(groups: Iterable[Group], table: Path, queue: Queue, member: Member, known: Known) -> int | None:
    """Parks what the log holds of the table from before the target came; the number of its rows, None where the log does not
    reach back to the table's beginning. Raises FileNotFoundError where rows of it are gone."""
    _, tenant, name, _ = queue.folder.parts[-4:]
    found: list[Group] = []
    is_whole = False
    for number, group in enumerate(groups):
        if number >= MOST_LOGGED:
            return None
        if (group.tenant, group.table) != (tenant, name) or not member.takes_late(
            definition := known(group.definition)
        ):
            continue
        is_whole = is_whole or (group.kind == PREPARE and definition.previous is None)
        if group.kind != PREPARE and not (group.kind == ROWS and group.file is None):
            found.append(group)
    if not is_whole:
        return None
    for group in found:
        queue.put(group, table, is_backfill=True)
    return sum(group.file.rows for group in found if group.file)


def _chunks(root: Path, file: AddFile, name: str, chunks_of: dict[int, str] | None) -> tuple[StagedChunk, ...]:
    """Rows without a key are told apart by their chunks: by their own as long as the table remembers them, and so that what
    the queue gets once more is known there."""
    if chunks_of is None:
        return (StagedChunk(f"backfill-{name}/0", 0, file.live_rows, 0),)
    with pq.ParquetFile(root / file.name, memory_map=True) as parquet:
        counted = pc.value_counts(parquet.read(["_version"])["_version"]).to_pylist()
    return tuple(
        StagedChunk(chunks_of.get(one["values"], f"backfill@{one['values']}"), 0, one["counts"], one["values"])
        for one in sorted(counted, key=lambda one: one["values"])
    )
