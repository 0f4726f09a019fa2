"""Tombstones: deleted keys with the version of the delete, so that an older row that comes late loses.
Sorted key hashes in, an immutable key file out. The table's log lists the valid files. A missing file stops all writes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.lake.key_format import read_keys, write_keys
from millrace.lake.key_merge import FAN_IN, by_level, hash_ranges
from millrace.lake.key_pages import DamagedKeys
from millrace.lake.keys import KeyFile
from millrace.lake.matching import WantedHashes
from millrace.lake.store import Store
from millrace.model.errors import Corrupt

TOMBSTONES_FOLDER = "_millrace/tombstones"
NEVER_DELETED = -1
# A merge holds its tombstones in memory, 24 bytes each. Larger files are not merged.
MOST_MERGED_ROWS = 4_000_000
MERGE_BLOCK_ROWS = 1_000_000
# A file is rewritten if a larger share of it can be purged.
WORN_SHARE = 0.25

Hashes = npt.NDArray[np.uint64]
Versions = npt.NDArray[np.int64]
IsUseless = Callable[[Hashes, Hashes, Versions], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class MergedTombstones:
    """The file that replaces others, None if nothing is left, and the greatest purged version."""

    name: str | None
    purged: int = NEVER_DELETED


class Tombstones:
    """A table's tombstone files, kept open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, KeyFile] = {}

    def versions(self, names: Sequence[str], h1: Hashes, h2: Hashes) -> Versions:
        """For each key, in h1 order, the version of its last delete."""
        deleted_at = np.full(len(h1), NEVER_DELETED, dtype=np.int64)
        sought = WantedHashes(h1)
        for keys in self.listed(names):
            ours, theirs = keys.find(sought, h2)
            np.maximum.at(deleted_at, ours, keys.version[theirs])
        return deleted_at

    def listed(self, names: Sequence[str]) -> list[KeyFile]:
        """The valid files. They stay open while they are valid."""
        self._open = {name: self._open.get(name) or self._read(name) for name in names}
        return list(self._open.values())

    def read(self, names: Sequence[str]) -> list[KeyFile]:
        return [self._read(name) for name in names]

    def _read(self, name: str) -> KeyFile:
        if (keys := self._whole(name)) is None and self._store.renew(name):
            keys = self._whole(name)
        if keys is None:
            # Without it a deleted row could come back, so no decision is possible.
            path = self._store.path(name)
            raise Corrupt(f"The tombstone file {path} is missing or damaged.", remedy="Restore the file from a copy.")
        return keys

    def _whole(self, name: str) -> KeyFile | None:
        keys = read_keys(self._store, name)
        try:
            if keys is not None:
                keys.check()
        except DamagedKeys:
            return None
        return keys


def write_tombstones(store: Store, prefix: str, h1: Hashes, h2: Hashes, version: Versions) -> str:
    """Writes a file whose name follows from its content: written again, it is the same file."""
    content = b"".join(np.ascontiguousarray(column).tobytes() for column in (h1, h2, version))
    name = f"{TOMBSTONES_FOLDER}/{prefix}-{store.digest(content)}.keys"
    write_keys(store, name, KeyFile(("",), h1, h2, version, np.zeros(len(h1), dtype=np.uint32)))
    return name


def due(files: Sequence[KeyFile], most_rows: int, safe_version: int = NEVER_DELETED) -> list[KeyFile]:
    """The files to merge next: a full level within the limit, else a file of which enough can be purged, else none."""
    for level in by_level(sorted(files, key=len), len):
        room = np.cumsum([len(file) for file in level]) <= most_rows
        if room.sum() >= FAN_IN:
            return level[: int(room.sum())]
    return [file for file in files if (file.version <= safe_version).sum() > WORN_SHARE * len(file)][:1]


def merge(store: Store, sources: Sequence[KeyFile], safe_version: int, is_useless: IsUseless) -> MergedTombstones:
    """One file with the last delete of each key, without useless deletes and those at or below the safe version."""
    parts, purged = [], NEVER_DELETED
    for h1, h2, version in _blocks(sources):
        old = version <= safe_version
        purged = max(purged, int(version[old].max(initial=NEVER_DELETED)))
        keep = ~old
        keep[keep] = ~is_useless(h1[keep], h2[keep], version[keep])
        parts.append((h1[keep], h2[keep], version[keep]))
    h1, h2, version = (np.concatenate(column) for column in zip(*parts, strict=True))
    return MergedTombstones(write_tombstones(store, "merged", h1, h2, version) if len(h1) else None, purged)


def _blocks(sources: Sequence[KeyFile]) -> Iterator[tuple[Hashes, Hashes, Versions]]:
    """The tombstones by ranges of hashes, each key once."""
    for parts in hash_ranges(sources, MERGE_BLOCK_ROWS):
        h1, h2 = np.concatenate([part.h1 for part in parts]), np.concatenate([part.h2 for part in parts])
        version = np.concatenate([part.version for part in parts])
        order = np.lexsort((version, h2, h1))
        h1, h2, version = h1[order], h2[order], version[order]
        is_last = np.append((h1[1:] != h1[:-1]) | (h2[1:] != h2[:-1]), True)[: len(h1)]
        yield h1[is_last], h2[is_last], version[is_last]
