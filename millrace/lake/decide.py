"""Who wins: staged files and the table's live rows in, the positions that lose out, by (version, position).
Reads only key hashes and deletion vectors. An equal version that is already there wins, so a replay changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from millrace.lake.actions import AddFile, Transaction, now_ms
from millrace.lake.deletion_vectors import load_vector
from millrace.lake.index import Hits, KeyIndex
from millrace.lake.keys import KeyFile
from millrace.lake.log import Snapshot
from millrace.lake.sidecar import StagedFile
from millrace.lake.store import Store
from millrace.model.errors import Invalid

Dead = npt.NDArray[np.uint32]


@dataclass(slots=True)
class Decision:
    """Staged files to add, and the positions that die with this commit, in them and in files that are live."""

    added: list[StagedFile] = field(default_factory=list)
    dead: dict[str, Dead] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    replaced: int = 0
    beaten: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _NewRows:
    """All staged rows in key order; `staged` numbers their file."""

    h1: npt.NDArray[np.uint64]
    h2: npt.NDArray[np.uint64]
    version: npt.NDArray[np.int64]
    position: npt.NDArray[np.uint32]
    staged: npt.NDArray[np.intp]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "_NewRows":
        return _NewRows(self.h1[rows], self.h2[rows], self.version[rows], self.position[rows], self.staged[rows])


def decide_keyed(store: Store, snapshot: Snapshot, index: KeyIndex, staged: Sequence[StagedFile]) -> Decision:
    """For every key the row of the greatest version lives, among staged and live rows."""
    files = _not_live(snapshot, staged)
    if not files:
        return Decision()
    rows = _gathered([index.sidecar(as_add(file)) for file in files])
    rows, doubles = _split_winners(rows)
    paths, hits = index.find(snapshot, rows.h1, rows.h2)
    hits = _alive(store, snapshot, paths, hits)
    loses = hits.version < rows.version[hits.key]
    is_beaten = np.zeros(len(rows.h1), dtype=bool)
    is_beaten[hits.key[~loses]] = True
    old_losers, beaten = hits.where(loses), rows.take(is_beaten)
    decision = Decision(added=files, replaced=len(old_losers.key), beaten=len(beaten.h1) + len(doubles.h1))
    for number, positions in _grouped(old_losers.file, old_losers.position):
        decision.dead[paths[number]] = positions
    losers = np.concatenate([beaten.staged, doubles.staged]), np.concatenate([beaten.position, doubles.position])
    for number, positions in _grouped(*losers):
        decision.dead[files[number].path] = positions
    return decision


def decide_keyless(snapshot: Snapshot, staged: Sequence[StagedFile]) -> Decision:
    """Every chunk is taken once: rows of a chunk that is in the table, or came earlier in this batch, die."""
    decision, seen = Decision(), set(snapshot.transactions)
    for file in _not_live(snapshot, staged):
        if sum(chunk.rows for chunk in file.chunks) != file.rows:
            raise Invalid(
                f"The chunks of {file.path} do not cover its {file.rows} rows.",
                remedy="A table without a key needs them to append each row once.",
            )
        repeated = []
        for chunk in file.chunks:
            if chunk.chunk_id in seen:
                first = chunk.first_position
                repeated.append(np.arange(first, first + chunk.rows, dtype=np.uint32))
                continue
            seen.add(chunk.chunk_id)
            decision.transactions.append(Transaction(chunk.chunk_id, chunk.version, now_ms()))
        if len(repeated) < len(file.chunks):
            decision.added.append(file)
            if repeated:
                decision.dead[file.path] = np.concatenate(repeated)
        decision.beaten += sum(len(positions) for positions in repeated)
    return decision


def as_add(file: StagedFile) -> AddFile:
    return AddFile(file.path, file.size, file.rows, now_ms())


def dead_positions(store: Store, file: AddFile) -> BitMap:
    return load_vector(store, file.deletion_vector) if file.deletion_vector else BitMap()


def _not_live(snapshot: Snapshot, staged: Sequence[StagedFile]) -> list[StagedFile]:
    return [
        file for path, file in {file.path: file for file in staged}.items() if path not in snapshot.files and file.rows
    ]


def _gathered(sidecars: Sequence[KeyFile]) -> _NewRows:
    staged = np.repeat(np.arange(len(sidecars)), [len(keys) for keys in sidecars])
    rows = _NewRows(
        np.concatenate([keys.h1 for keys in sidecars]),
        np.concatenate([keys.h2 for keys in sidecars]),
        np.concatenate([keys.version for keys in sidecars]),
        np.concatenate([keys.position for keys in sidecars]),
        staged,
    )
    # Each sidecar is sorted, so a stable sort only merges them.
    return rows if len(sidecars) == 1 else rows.take(np.argsort(rows.h1, kind="stable"))


def _split_winners(rows: _NewRows) -> tuple[_NewRows, _NewRows]:
    """Of rows in h1 order: the last by (version, file, position) of each key, and the others."""
    equal = rows.h1[1:] == rows.h1[:-1]
    if not equal.any():
        return rows, rows.take(np.zeros(len(rows.h1), dtype=bool))
    crowded = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    part = rows.take(crowded)
    order = np.arange(len(rows.h1))
    order[crowded] = crowded[np.lexsort((part.position, part.staged, part.version, part.h2, part.h1))]
    rows = rows.take(order)
    is_last = np.append((rows.h1[1:] != rows.h1[:-1]) | (rows.h2[1:] != rows.h2[:-1]), True)
    return rows.take(is_last), rows.take(~is_last)


def _alive(store: Store, snapshot: Snapshot, paths: Sequence[str], hits: Hits) -> Hits:
    """The hits that no deletion vector has marked."""
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
