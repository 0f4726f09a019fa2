"""Which version of each key was written last, in memory: sorted runs, 25 bytes per key.

Beyond a limit the lowest versions are forgotten, except those of deletes. `horizon` is the greatest forgotten version: a key
that is unknown here has no version above it."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
UNKNOWN = -1
# A run up to this size stays beside the large one; a larger one is merged into it.
SMALL_RUN = 50_000


@dataclass(frozen=True, slots=True)
class Written:
    """Keys (two lanes of their hash) with the version that was written, and whether it was a delete."""

    first: U64
    second: U64
    version: I64
    is_delete: Flags

    def __len__(self) -> int:
        return len(self.first)

    def taken(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "Written":
        return Written(self.first[which], self.second[which], self.version[which], self.is_delete[which])

    def to_bytes(self) -> bytes:
        marks = self.is_delete.astype(np.uint8)
        return b"".join(column.tobytes() for column in (self.first, self.second, self.version, marks))

    @staticmethod
    def from_bytes(body: bytes) -> "Written":
        rows = len(body) // 25
        words = np.frombuffer(body, dtype="<u8", count=2 * rows)
        versions = np.frombuffer(body, dtype="<i8", count=rows, offset=16 * rows)
        marks = np.frombuffer(body, dtype=np.uint8, count=rows, offset=24 * rows)
        return Written(words[:rows], words[rows:], versions, marks.astype(np.bool_))


def nothing() -> Written:
    words = np.empty(0, dtype=np.uint64)
    return Written(words, words, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_))


def joined(parts: list[Written]) -> Written:
    if not parts:
        return nothing()
    columns = zip(*((part.first, part.second, part.version, part.is_delete) for part in parts), strict=True)
    return Written(*map(np.concatenate, columns))


@dataclass(slots=True)
class Versions:
    horizon: int = 0
    _large: Written = field(default_factory=nothing)
    _small: Written = field(default_factory=nothing)

    def __len__(self) -> int:
        return len(self._large) + len(self._small)

    def known(self, first: U64, second: U64) -> I64:
        """The last version of each key, UNKNOWN where there is none."""
        return np.maximum(_found(self._large, first, second), _found(self._small, first, second))

    def remember(self, written: Written) -> None:
        self._small = _newest(joined([self._small, written]))
        if len(self._small) > max(SMALL_RUN, len(self._large) // 4):
            self._large, self._small = _newest(joined([self._large, self._small])), nothing()

    def raise_floor(self, floor: int) -> None:
        """Forgets versions at or below the floor: the floor decides about them."""
        self._large = self._large.taken(self._large.version > floor)
        self._small = self._small.taken(self._small.version > floor)

    def forget(self, most: int) -> Written | None:
        """Keeps the newest `most` keys and all deletes. Returns what is left, or None if nothing was forgotten."""
        whole = _newest(joined([self._large, self._small]))
        if len(whole) <= most:
            return None
        limit = int(np.sort(whole.version)[-most])
        stays = (whole.version >= limit) | whole.is_delete
        if not stays.all():
            self.horizon = max(self.horizon, int(whole.version[~stays].max()))
        self._large, self._small = whole.taken(stays), nothing()
        return self._large


def _found(run: Written, first: U64, second: U64) -> I64:
    versions = np.full(len(first), UNKNOWN, dtype=np.int64)
    at = np.searchsorted(run.first, first)
    open_ = np.flatnonzero(at < len(run))
    while len(open_):
        places = at[open_]
        open_, places = open_[run.first[places] == first[open_]], places[run.first[places] == first[open_]]
        is_it = run.second[places] == second[open_]
        versions[open_[is_it]] = run.version[places[is_it]]
        # The first lane matches and the second does not: look at the next entry.
        open_ = open_[~is_it]
        at[open_] += 1
        open_ = open_[at[open_] < len(run)]
    return versions


def _newest(run: Written) -> Written:
    """Sorted by key, the greatest version of each."""
    ordered = run.taken(np.argsort(run.first, kind="stable"))
    if not (ordered.first[1:] == ordered.first[:-1]).any():
        return ordered
    ordered = run.taken(np.lexsort((run.version, run.second, run.first)))
    is_last = np.ones(len(ordered), dtype=np.bool_)
    is_last[:-1] = (ordered.first[1:] != ordered.first[:-1]) | (ordered.second[1:] != ordered.second[:-1])
    return ordered.taken(is_last)
