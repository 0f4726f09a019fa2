"""Finds the rows of keys: sorted key hashes in, (file, position, version) out. Sidecars are the source. Merged runs are a
cache of them in levels, so that few files are searched. Hits in files that are not live are ignored. A damaged run is
dropped, a damaged sidecar is made again from the rows of its file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from millrace.lake.actions import AddFile, Metadata
from millrace.lake.core_share import CoreShare
from millrace.lake.key_format import read_keys
from millrace.lake.key_merge import FAN_IN, MergeSource, due_for_merge, merge_keys
from millrace.lake.key_pages import DamagedKeys
from millrace.lake.keys import RUNS_FOLDER, KeyFile, sidecar_name
from millrace.lake.log import Snapshot
from millrace.lake.long_work import announce
from millrace.lake.matching import WantedHashes
from millrace.lake.row_keys import make_sidecar
from millrace.lake.store import Store
from millrace.model.errors import Corrupt
from millrace.observe import log

# So much of mapped key files may stay in a process. What is read beyond it comes from the page cache.
MOST_MAPPED_BYTES = 256 << 20


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
class _Selection:
    """Key files that cover all files of one version."""

    version: int
    runs: list[KeyFile]
    sidecars: dict[str, KeyFile]

    @property
    def key_files(self) -> list[KeyFile]:
        return [*self.runs, *self.sidecars.values()]


class KeyIndex:
    """The index of one table. It keeps key files open, and no rows in memory."""

    def __init__(self, store: Store, key: Sequence[str]) -> None:
        self._store = store
        self._key = list(key)
        self._sidecars: dict[str, KeyFile] = {}
        self._runs: dict[str, KeyFile] | None = None
        # Files that runs cover. One that several of them cover may be missing here: then its sidecar is asked as well.
        self._covered: set[str] = set()
        self._selection: _Selection | None = None

    def find(
        self, snapshot: Snapshot, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]
    ) -> tuple[list[str], Hits]:
        """The snapshot's rows with these keys (sorted by h1), deleted rows included, and the paths of their files."""
        while True:
            try:
                return self._find(snapshot, h1, h2)
            except DamagedKeys as damage:
                self._mend(damage.name, snapshot)

    def sidecar(self, file: AddFile, table: Metadata | None = None) -> KeyFile:
        """The file's sidecar. A lost or damaged one is made again from the file's rows, and so is that of a file of another
        engine: its rows are read as the table declares them."""
        known = self._sidecars.get(file.path)
        if known is None:
            known = read_keys(self._store, sidecar_name(file.name))
            if known is None or known.files != (file.path,):
                announce(file.rows)
                known = make_sidecar(self._store, file, self._key, table)
            self._sidecars[file.path] = known
        return known

    def staged(self, file: AddFile) -> KeyFile:
        """The sidecar of a file that is to be added, with all its pages checked."""
        keys = self.sidecar(file)
        try:
            keys.check()
        except DamagedKeys:
            keys = self._sidecars[file.path] = make_sidecar(self._store, file, self._key)
        return keys

    def tidy(
        self,
        snapshot: Snapshot,
        most_rows: int | None = None,
        *,
        in_passing: bool = False,
        share: CoreShare | None = None,
    ) -> None:
        """Merges full levels, up to the limit, and deletes runs that are no longer used.

        `in_passing`: called within a commit. Then it looks at small key files only."""
        limit = most_rows if in_passing else None
        if not in_passing or due_for_merge(self._sources(snapshot, limit), most_rows) is not None:
            self._list_runs()
        while (due := due_for_merge(self._sources(snapshot, limit), most_rows)) is not None:
            answered = frozenset(path for source in due for path in source.answered)
            try:
                name = merge_keys(self._store, [source.keys for source in due], answered, share)
            except DamagedKeys as damage:
                self._mend(damage.name, snapshot)
                continue
            merged = read_keys(self._store, name)
            if merged is None:
                return
            self._forget(source.keys.name for source in due if source.keys.name != name)
            self._set_runs({**self._open_runs(), name: merged})
        if not in_passing:
            used = {source.keys.name for source in self._sources(snapshot)}
            self._forget([name for name in self._open_runs() if name not in used])

    @property
    def pages_read(self) -> int:
        """Distinct pages of open key files that were read and checked."""
        return sum(keys.pages.reads for keys in (self._runs or {}).values() if keys.pages is not None)

    def reopen(self) -> None:
        """Lists the runs again, after another process has merged."""
        self._runs, self._covered, self._selection = None, set(), None

    def _find(
        self, snapshot: Snapshot, h1: npt.NDArray[np.uint64], h2: npt.NDArray[np.uint64]
    ) -> tuple[list[str], Hits]:
        selection, sought = self._select(snapshot), WantedHashes(h1)
        found = _FoundFiles(snapshot)
        hits = _joined([found.hits(keys, *keys.find(sought, h2)) for keys in selection.key_files])
        if sum(keys.h1.nbytes for keys in selection.runs) > MOST_MAPPED_BYTES // 4:
            for keys in selection.runs:
                keys.release()
        return found.paths, hits

    def _mend(self, name: str, snapshot: Snapshot) -> None:
        """Drops a damaged run: the sidecars of its files serve instead. Makes a damaged sidecar again."""
        log("key_file_damaged", table=self._store.where, file=name)
        if name in self._open_runs():
            self._forget([name])
            return
        damaged = [path for path, keys in self._sidecars.items() if keys.name == name and path in snapshot.files]
        if not damaged:
            path = self._store.path(name)
            raise Corrupt(f"The key file {path} is damaged.", remedy="Delete it: it is made again from the rows.")
        for path in damaged:
            self._sidecars[path] = make_sidecar(self._store, snapshot.files[path], self._key, snapshot.metadata)
        self._selection = None

    def _forget(self, names: Iterable[str | None]) -> None:
        gone = [name for name in names if name in self._open_runs()]
        for name in gone:
            self._store.delete(name)
        self._set_runs({name: keys for name, keys in self._open_runs().items() if name not in gone})

    def _open_runs(self) -> dict[str, KeyFile]:
        return self._list_runs() if self._runs is None else self._runs

    def _list_runs(self) -> dict[str, KeyFile]:
        """Opens runs that others have made, and forgets those that are gone."""
        known, found = self._runs or {}, {}
        for entry in self._store.list(RUNS_FOLDER):
            keys = known.get(entry.name) or read_keys(self._store, entry.name)
            if keys is not None:
                found[entry.name] = keys
        return self._set_runs(found)

    def _set_runs(self, runs: dict[str, KeyFile]) -> dict[str, KeyFile]:
        before = self._runs or {}
        for name in before.keys() - runs.keys():
            self._covered.difference_update(before[name].files)
        for name in runs.keys() - before.keys():
            self._covered.update(runs[name].files)
        self._runs, self._selection = runs, None
        return runs

    def _select(self, snapshot: Snapshot) -> _Selection:
        if self._selection is not None and self._selection.version == snapshot.version:
            return self._selection
        runs = self._open_runs().values()
        used = [run for run in runs if any(path in snapshot.files for path in run.files)]
        open_files = sorted(snapshot.files.keys() - self._covered)
        if len(open_files) > len(self._sidecars) + FAN_IN:
            self._store.prefetch([sidecar_name(snapshot.files[path].name) for path in open_files])
        table = snapshot.metadata
        self._sidecars = {path: self.sidecar(snapshot.files[path], table) for path in open_files}
        self._selection = _Selection(snapshot.version, used, dict(self._sidecars))
        return self._selection

    def _sources(self, snapshot: Snapshot, most_rows: int | None = None) -> list[MergeSource]:
        """The key files in use, the longest first; none that is longer than the limit."""
        taken: set[str] = set()
        sources = []
        for keys in sorted(self._select(snapshot).key_files, key=len, reverse=True):
            if most_rows is None or len(keys) <= most_rows:
                answered = [path for path in keys.files if path in snapshot.files and path not in taken]
                taken.update(answered)
                if answered:
                    rows = sum(snapshot.files[path].rows for path in answered) if len(keys.files) > 1 else len(keys)
                    sources.append(MergeSource(keys, answered, rows))
        return sources


class _FoundFiles:
    """Numbers the live files that have hits. If several key files cover a file, the first one gives its hits: each of them
    has all."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._files = snapshot.files
        self._known: dict[str, tuple[KeyFile, int]] = {}

    @property
    def paths(self) -> list[str]:
        return list(self._known)

    def hits(self, keys: KeyFile, key: npt.NDArray[np.intp], row: npt.NDArray[np.intp]) -> Hits:
        used, which = np.unique(keys.files_of(row), return_inverse=True)
        numbers = np.array([self._number(keys, keys.files[file]) for file in used.tolist()], dtype=np.int64)
        file = numbers[which]
        return Hits(key, file, keys.position[row], keys.version[row]).where(file >= 0)

    def _number(self, keys: KeyFile, path: str) -> int:
        if path not in self._files:
            return -1
        source, number = self._known.setdefault(path, (keys, len(self._known)))
        return number if source is keys else -1


def _joined(parts: Sequence[Hits]) -> Hits:
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return Hits(none, none, none.astype(np.uint32), none)
    return Hits(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Hits)))
