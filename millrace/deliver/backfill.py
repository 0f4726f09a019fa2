"""What was in a table before a target came to it: the log, or the Delta table's live rows in, items of its queue out.

The files are linked, not read: memory does not grow with the table, and the couriers deliver them like anything else. Taken
twice they change nothing, because every row carries its version, and rows without a key their chunk."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from pyroaring import BitMap

from millrace.deliver.queue import Queue, where_staged
from millrace.deliver.roster import Member
from millrace.exchange.places import Places
from millrace.lake.batch import Publication, age
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.log import Snapshot, load
from millrace.lake.sidecar import StagedChunk, StagedFile
from millrace.lake.state import TableState
from millrace.lake.store import Store
from millrace.model.chunk import PREPARE, ROWS
from millrace.model.sinks import DELTA_KIND
from millrace.model.table import Definition
from millrace.sink.contract import StagedGroup

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
    remembered = {
        (done.app_id.rpartition("/")[0], done.version): done.app_id for done in snapshot.transactions.values()
    }
    for file in snapshot.files.values():
        dead = load_vector(store, file.deletion_vector) if file.deletion_vector else BitMap()
        name = hashlib.blake2b(file.path.encode(), digest_size=12).hexdigest()
        parts = [_Part((StagedChunk(f"backfill-{name}/0", 0, file.live_rows, 0),), dead)]
        if not definition.table.primary_key:
            parts = _apart(root / file.name, dead, remembered)
        for number, part in enumerate(parts):
            staged = StagedFile(file.name, file.size, sum(chunk.rows for chunk in part.chunks), None, part.chunks)
            group = StagedGroup(definition.tenant, definition.table.name, definition.fingerprint, staged, ())
            gone = part.dead.serialize() if part.dead else None
            queue.put_copied(f"{name}-{number}" if number else name, group, root, gone, max(state.floor, 0))
    return snapshot.live_rows


def put_logged(groups: Iterable[StagedGroup], places: Places, queue: Queue, member: Member, known: Known) -> int | None:
    """Parks what the log holds of the table from before the target came; the number of its rows, None where the log does not
    reach back to the table's beginning. Raises FileNotFoundError where rows of it are gone."""
    _, tenant, name, _ = queue.folder.parts[-4:]
    found: list[StagedGroup] = []
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
        queue.put(group, where_staged(places, group), is_backfill=True)
    return sum(group.file.rows for group in found if group.file)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some chunks of a file, and the positions in it that are none of their rows."""

    chunks: tuple[StagedChunk, ...]
    dead: BitMap


def _apart(path: Path, dead: BitMap, remembered: Mapping[tuple[str, int], str]) -> list[_Part]:
    """Rows without a key are told apart by their chunks: by their own as long as the table remembers them, so that what the
    queue gets once more is known there.

    A chunk is what an import wrote at a version; one that died here lives in another file. A replay has the versions of the
    import it replays, and targets tell chunks by their versions: such two go apart."""
    with pq.ParquetFile(path, memory_map=True, read_dictionary=["_import"]) as parquet:
        rows = pl.DataFrame(parquet.read(["_import", "_version"])).with_row_index("place")
    live = rows.filter(~pl.col("place").is_in(np.asarray(dead.to_array())))
    chunks = live.group_by("_version", "_import").agg("place").sort("_version", "_import")
    nth = pl.int_range(pl.len()).over("_version")
    parts = []
    for some in chunks.with_columns(nth=nth).partition_by("nth", maintain_order=True, include_key=False):
        named = tuple(
            StagedChunk(remembered.get((of, version), f"{of}/backfill@{version}"), 0, len(places), version)
            for version, of, places in some.iter_rows()
        )
        parts.append(_Part(named, BitMap(range(rows.height)) - BitMap(some["place"].explode().to_numpy())))
    return parts
