"""Decides by version: staged rows, staged deletes and live rows in, the positions of losing rows out.
Reads only key hashes and deletion vectors. At equal versions the stored row wins, so a replay changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.lake.actions import AddFile, Transaction, now_ms
from millrace.lake.deletion_vectors import dead_positions
from millrace.lake.index import Hits, KeyIndex
from millrace.lake.key_merge import hash_ranges
from millrace.lake.keys import KeyFile
from millrace.lake.log import Snapshot
from millrace.lake.sidecar import StagedFile
from millrace.lake.state import NO_FLOOR
from millrace.lake.store import Store
from millrace.lake.tombstones import IsUseless, Tombstones
from millrace.model.errors import Invalid

# Staged rows per decision. It bounds the memory, however many rows are committed together.
BLOCK_ROWS = 1 << 20

Dead = npt.NDArray[np.uint32]


@dataclass(slots=True)
class Decision:
    """Staged files to add, the positions that this commit deletes in them and in live files, and the staged tombstone files
    to keep. `updated`, if it is wanted: the positions of live rows that another row of their key replaces, and of the staged
    rows that replace them."""

    added: list[StagedFile] = field(default_factory=list)
    dead: dict[str, Dead] = field(default_factory=dict)
    tombstones: list[str] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    updated: dict[str, Dead] | None = None

    def kill(self, path: str, positions: Dead) -> None:
        _join(self.dead, path, positions)


def _join(known: dict[str, Dead], path: str, positions: Dead) -> None:
    before = known.get(path)
    known[path] = positions if before is None else np.concatenate([before, positions])


@dataclass(frozen=True, slots=True, eq=False)
class TableContents:
    """What a decision reads: the table's live rows, its deleted keys, and its floor."""

    store: Store
    snapshot: Snapshot
    index: KeyIndex
    tombstones: Tombstones
    listed: Sequence[str] = ()
    floor: int = NO_FLOOR

    def live(self, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]) -> tuple[list[str], Hits]:
        """The live rows with these keys, in h1 order."""
        paths, hits = self.index.find(self.snapshot, h1, h2)
        return paths, _alive(self.store, self.snapshot, paths, hits)

    def has_had(self, path: str) -> bool:
        """Whether the table got this file earlier. A retry must not bring back rows that another engine has deleted since."""
        return path in self.snapshot.files or path in self.snapshot.removed

    def is_useless(self) -> IsUseless:
        """Tombstones of keys that have a newer row. They are useless: the newer row always wins where they would."""

        def judged(
            h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64], version: npt.NDArray[np.int64]
        ) -> npt.NDArray[np.bool_]:
            useless = np.zeros(len(h1), dtype=bool)
            _, hits = self.live(h1, h2)
            useless[hits.key[hits.version > version[hits.key]]] = True
            return useless

        return judged


@dataclass(frozen=True, slots=True, eq=False)
class _NewRows:
    """Staged rows in key order. `staged` is the number of their file; `deletes` marks tombstones."""

    h1: npt.NDArray[np.uint64]
    h2: npt.NDArray[np.uint64]
    version: npt.NDArray[np.int64]
    position: npt.NDArray[np.uint32]
    staged: npt.NDArray[np.intp]
    deletes: npt.NDArray[np.bool_]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "_NewRows":
        return _NewRows(*(getattr(self, column.name)[rows] for column in fields(self)))


def decide_keyed(known: TableContents, staged: Sequence[StagedFile], *, tell_updates: bool = False) -> Decision:
    """For each key, the row or delete of the greatest version wins, among staged and live ones."""
    files = [file for file in _distinct(staged) if file.rows and not known.has_had(file.path)]
    graves = [name for name in dict.fromkeys(file.tombstones for file in staged) if name and name not in known.listed]
    decision = Decision(added=files, updated={} if tell_updates else None)
    sources = [known.index.staged(as_add(file)) for file in files] + known.tombstones.read(graves)
    if not sources:
        return decision
    effective = np.zeros(len(sources), dtype=bool)
    for parts in hash_ranges(sources, BLOCK_ROWS):
        rows, doubles = _split_winners(_gathered(parts, len(files)))
        paths, hits = known.live(rows.h1, rows.h2)
        # A delete wins against a row of the same version. A staged row loses against a stored row of the same version.
        stronger = hits.version >= rows.version[hits.key] + rows.deletes[hits.key]
        is_beaten = rows.version <= known.floor
        is_beaten |= known.tombstones.versions(known.listed, rows.h1, rows.h2) >= rows.version
        is_beaten[hits.key[stronger]] = True
        dying = hits.where(~is_beaten[hits.key])
        for number, positions in _grouped(dying.file, dying.position):
            decision.kill(paths[number], positions)
        if decision.updated is not None:
            _tell_updates(decision.updated, rows, files, paths, dying)
        effective[np.unique(rows.staged[rows.deletes & ~is_beaten])] = True
        for losers in (rows.take(is_beaten & ~rows.deletes), doubles.take(~doubles.deletes)):
            for number, positions in _grouped(losers.staged, losers.position):
                decision.kill(files[number].path, positions)
        if sum(map(len, sources)) > BLOCK_ROWS:
            for source in sources:
                source.release()
    decision.tombstones = [name for name, counts in zip(graves, effective[len(files) :], strict=True) if counts]
    return decision


def _tell_updates(
    updated: dict[str, Dead], rows: _NewRows, files: Sequence[StagedFile], paths: Sequence[str], dying: Hits
) -> None:
    replaced = dying.where(~rows.deletes[dying.key])
    for number, positions in _grouped(replaced.file, replaced.position):
        _join(updated, paths[number], positions)
    replacing = rows.take(np.unique(replaced.key))
    for number, positions in _grouped(replacing.staged, replacing.position):
        _join(updated, files[number].path, positions)


def decide_keyless(snapshot: Snapshot, staged: Sequence[StagedFile], floor: int = NO_FLOOR) -> Decision:
    """Each chunk counts once. Rows lose if their chunk is in the table already, came earlier in this batch, or is at or below
    the floor."""
    decision, seen = Decision(), set[str]()
    for file in _distinct(staged):
        if file.path in snapshot.files or not file.rows:
            continue
        if sum(chunk.rows for chunk in file.chunks) != file.rows:
            raise Invalid(
                f"The chunks of {file.path} do not cover its {file.rows} rows.",
                remedy="A table without a key needs them to append each row once.",
            )
        dropped = []
        for chunk in file.chunks:
            if chunk.chunk_id in seen or chunk.chunk_id in snapshot.transactions or chunk.version <= floor:
                first = chunk.first_position
                dropped.append(np.arange(first, first + chunk.rows, dtype=np.uint32))
                continue
            seen.add(chunk.chunk_id)
            decision.transactions.append(Transaction(chunk.chunk_id, chunk.version, now_ms()))
        if len(dropped) < len(file.chunks):
            decision.added.append(file)
            if dropped:
                decision.dead[file.path] = np.concatenate(dropped)
    return decision


def as_add(file: StagedFile) -> AddFile:
    return AddFile(file.path, file.size, file.rows, now_ms(), stats=file.stats)


def _distinct(staged: Sequence[StagedFile]) -> list[StagedFile]:
    return list({file.path: file for file in staged}.values())


def _gathered(sources: Sequence[KeyFile], files: int) -> _NewRows:
    """The first `files` sources are rows of files, the others are tombstones."""
    counts = [len(keys) for keys in sources]
    numbers = np.arange(len(sources))
    h1, h2, version, position = (
        np.concatenate([getattr(keys, name) for keys in sources]) for name in ("h1", "h2", "version", "position")
    )
    rows = _NewRows(h1, h2, version, position, np.repeat(numbers, counts), np.repeat(numbers >= files, counts))
    # Each source is sorted, so a stable sort is a merge.
    return rows if len(sources) == 1 else rows.take(np.argsort(rows.h1, kind="stable"))


def _split_winners(rows: _NewRows) -> tuple[_NewRows, _NewRows]:
    """For rows in h1 order: the last row of each key by (version, delete, file, position), and the other rows."""
    equal = rows.h1[1:] == rows.h1[:-1]
    if not equal.any():
        return rows, rows.take(np.zeros(len(rows.h1), dtype=bool))
    crowded = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    part = rows.take(crowded)
    order = np.arange(len(rows.h1))
    order[crowded] = crowded[np.lexsort((part.position, part.staged, part.deletes, part.version, part.h2, part.h1))]
    rows = rows.take(order)
    is_last = np.append((rows.h1[1:] != rows.h1[:-1]) | (rows.h2[1:] != rows.h2[:-1]), True)
    return rows.take(is_last), rows.take(~is_last)


def _alive(store: Store, snapshot: Snapshot, paths: Sequence[str], hits: Hits) -> Hits:
    """The hits that are not in a deletion vector."""
    is_alive = np.ones(len(hits.key), dtype=bool)
    for number, rows in _grouped(hits.file, np.arange(len(hits.file), dtype=np.int64)):
        file = snapshot.files[paths[number]]
        if file.deletion_vector:
            dead = np.asarray(dead_positions(store, file).to_array())
            positions = hits.position[rows]
            is_dead = np.zeros(max(int(positions.max()), int(dead[-1])) + 1, dtype=bool)
            is_dead[dead] = True
            is_alive[rows] = ~is_dead[positions]
    return hits if is_alive.all() else hits.where(is_alive)


def _grouped(numbers: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """The values of each number."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    for start, group in zip(starts, np.split(values[order], starts[1:]), strict=True):
        yield int(ordered[start]), group
