"""Finds the rows of keys: sorted key hashes in, (file, position, version) out. Sidecars are the source. Merged runs are a
cache of them in levels, so that few files are searched. Hits in files that are not live are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.lake.actions import AddFile
from millrace.lake.apart import rows_apart
from millrace.lake.bounds import too_large
from millrace.lake.keyhash import hash_keys
from millrace.lake.keys import FAN_IN, RUNS_FOLDER, KeyFile, by_level, merge_keys, read_keys, sidecar_name, write_keys
from millrace.lake.log import Snapshot
from millrace.lake.matching import Hashes, WantedHashes
from millrace.lake.schema import VERSION_COLUMN
from millrace.lake.sidecar import sorted_keys
from millrace.lake.store import Store


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The rows found. `key` is an index into the wanted keys, `file` an index into `paths`."""

    key: npt.NDArray[np.intp]
    file: npt.NDArray[np.int64]
    position: npt.NDArray[np.uint32]
    version: npt.NDArray[np.int64]

    def where(self, keep: npt.NDArray[np.bool_]) -> "Hits":
        return Hits(self.key[keep], self.file[keep], self.position[keep], self.version[keep])


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    keys: KeyFile
    # For each covered file its number among the live files; -1 if it is not live or another source covers it.
    numbers: npt.NDArray[np.int64]
    live_rows: int

    def answered(self) -> list[str]:
        return [path for path, number in zip(self.keys.files, self.numbers, strict=True) if number >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class _Selection:
    version: int
    paths: list[str]
    sources: list[_Source]


class KeyIndex:
    """The index of one table. It keeps key files open, and no rows in memory."""

    def __init__(self, store: Store, key: Sequence[str]) -> None:
        self._store = store
        self._key = list(key)
        self._sidecars: dict[str, KeyFile] = {}
        self._runs: dict[str, KeyFile] | None = None
        self._selection: _Selection | None = None

    def find(
        self, snapshot: Snapshot, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]
    ) -> tuple[list[str], Hits]:
        """The snapshot's paths, and its rows with these keys (sorted by h1), deleted rows included."""
        selection, sought = self._select(snapshot), WantedHashes(h1)
        return selection.paths, _joined([_probe(source, sought, h2) for source in selection.sources])

    def sidecar(self, file: AddFile) -> KeyFile:
        """The file's sidecar. A lost or damaged one is made again from the file's rows."""
        known = self._sidecars.get(file.path)
        if known is None:
            known = read_keys(self._store, sidecar_name(file.name))
            if known is None or known.files != (file.path,):
                known = _sidecar_of_foreign(self._store, file, self._key)
            self._sidecars[file.path] = known
        return known

    def tidy(self, snapshot: Snapshot, most_rows: int | None = None, *, in_passing: bool = False) -> None:
        """Merges full levels, up to the limit, and deletes runs that are no longer used.

        `in_passing`: called within a commit. Then it does nothing unless there is something to merge."""
        selection = self._select(snapshot)
        if in_passing and _due(selection.sources, most_rows) is None:
            return
        self._runs = None
        selection = self._select(snapshot, again=True)
        while (due := _due(selection.sources, most_rows)) is not None:
            answered = frozenset(path for source in due for path in source.answered())
            name = merge_keys(self._store, [source.keys for source in due], answered)
            merged = read_keys(self._store, name)
            if merged is None:
                return
            self._open_runs()[name] = merged
            self._forget(source.keys.name for source in due if source.keys.name != name)
            selection = self._select(snapshot, again=True)
        used = {source.keys.name for source in selection.sources}
        self._forget([name for name in self._open_runs() if name not in used])

    def reopen(self) -> None:
        """Lists the runs again, after another process has merged."""
        self._runs = self._selection = None

    def _forget(self, names: Iterable[str | None]) -> None:
        runs = self._open_runs()
        for name in list(names):
            if name in runs:
                del runs[name]
                self._store.delete(name)

    def _open_runs(self) -> dict[str, KeyFile]:
        if self._runs is None:
            listed = [entry.name for entry in self._store.list(RUNS_FOLDER)]
            self._runs = {name: keys for name in listed if (keys := read_keys(self._store, name)) is not None}
        return self._runs

    def _select(self, snapshot: Snapshot, again: bool = False) -> _Selection:
        if self._selection is not None and self._selection.version == snapshot.version and not again:
            return self._selection
        paths = list(snapshot.files)
        open_files = {path: number for number, path in enumerate(paths)}
        sources = []
        for run in sorted(self._open_runs().values(), key=len, reverse=True):
            numbers = [open_files.pop(path, -1) for path in run.files]
            if max(numbers, default=-1) >= 0:
                live_rows = sum(snapshot.files[paths[number]].rows for number in numbers if number >= 0)
                sources.append(_Source(run, np.array(numbers, dtype=np.int64), live_rows))
        if len(open_files) > len(self._sidecars) + FAN_IN:
            self._store.prefetch([sidecar_name(snapshot.files[path].name) for path in open_files])
        for path, number in open_files.items():
            keys = self.sidecar(snapshot.files[path])
            sources.append(_Source(keys, np.array([number], dtype=np.int64), len(keys)))
        self._sidecars = {path: self._sidecars[path] for path in open_files}
        self._selection = _Selection(snapshot.version, paths, sources)
        return self._selection


def make_sidecar(store: Store, file: AddFile, key: Sequence[str]) -> KeyFile:
    """Writes the sidecar of a file that we wrote from its key columns."""
    table = pq.read_table(store.source(file.name), columns=[*key, VERSION_COLUMN])
    return _written(store, file, hash_keys([table[column] for column in key]), table[VERSION_COLUMN])


def _sidecar_of_foreign(store: Store, file: AddFile, key: Sequence[str]) -> KeyFile:
    """The same of a file that another engine may have written: only its hashes and versions are in memory here."""
    if not store.bounds.rows_apart:
        return make_sidecar(store, file, key)
    lanes, versions, rows = [], [], 0
    for batch in rows_apart(store, file.name, [*key, VERSION_COLUMN]):
        lanes.append(hash_keys([pa.chunked_array([batch[column]]) for column in key]))
        versions.append(batch[VERSION_COLUMN])
        rows += batch.num_rows
        if rows > store.bounds.file_rows:
            raise too_large(store.where, file.name, f"has more than {store.bounds.file_rows} rows")
    hashes = np.concatenate([h1 for h1, _ in lanes]), np.concatenate([h2 for _, h2 in lanes])
    return _written(store, file, hashes, pa.chunked_array(versions))


def _written(store: Store, file: AddFile, hashes: tuple[Hashes, Hashes], versions: pa.ChunkedArray) -> KeyFile:
    keys = replace(sorted_keys(hashes, versions)[0], files=(file.path,))
    write_keys(store, sidecar_name(file.name), keys)
    return keys


def _probe(source: _Source, sought: WantedHashes, h2: npt.NDArray[np.uint64]) -> Hits:
    keys = source.keys
    key, row = sought.pairs(keys.h1)
    same = keys.h2[row] == h2[key]
    key, row = key[same], row[same]
    file = source.numbers[keys.files_of(row)]
    return Hits(key, file, keys.position[row], keys.version[row]).where(file >= 0)


def _joined(parts: Sequence[Hits]) -> Hits:
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Hits(none, none, none.astype(np.uint32), none)
    return Hits(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Hits)))


def _due(sources: Sequence[_Source], most_rows: int | None) -> list[_Source] | None:
    """The key files to merge next: a full level, or a run that mostly covers removed files."""
    for level in by_level(sources, lambda source: source.live_rows):
        group = _fitting(level, most_rows)
        if len(group) >= FAN_IN:
            return group
    hollow = [source for source in sources if 2 * len(source.answered()) < len(source.numbers)]
    return _fitting(hollow, most_rows)[:1] or None


def _fitting(sources: Sequence[_Source], most_rows: int | None) -> list[_Source]:
    """The smallest files whose sum is within the limit."""
    ordered = sorted(sources, key=lambda source: len(source.keys))
    if most_rows is None:
        return ordered
    return [
        source
        for source, rows in zip(ordered, accumulate(len(s.keys) for s in ordered), strict=True)
        if rows <= most_rows
    ]
