"""Sorted key hashes in, the pairs of equal hashes in other sorted lists out. Mostly there are none: this case must be cheap.
Hashes are uniform, so their leading bits differ in most cases. Long lists are read in blocks.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]
Places = npt.NDArray[np.int64]

# A binary search for one hash costs as much as filtering this many. In lists that are longer by more, we search.
SEARCH_COST = 4
# One hash in this many passes a filter by chance; both filters: one in its square.
PLACES_PER_HASH = 16
MOST_PLACES = 1 << 24
SIFTED_AT_ONCE = 1 << 18


class WantedHashes:
    """Sorted hashes, possibly repeated, to look for in several lists."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes

    def pairs(self, others: Hashes) -> tuple[Rows, Rows]:
        """All pairs of indices with equal hashes: of our hashes and of the others, which are also sorted."""
        ours = self.hashes
        if not len(ours) or not len(others):
            none = np.empty(0, dtype=np.intp)
            return none, none
        if len(others) > SEARCH_COST * len(ours):
            return found(ours, others)
        first = int(np.searchsorted(others, ours[0]))
        within = others[first : int(np.searchsorted(others, ours[-1], side="right"))]
        left = self._sifted(within)
        part, our = found(within[left], ours)
        return our, left[part] + first

    def _sifted(self, others: Hashes) -> Rows:
        """The others that may be among ours: their leading bits and their trailing bits are."""
        left = [np.empty(0, dtype=np.intp)]
        for start in range(0, len(others), SIFTED_AT_ONCE):
            block = others[start : start + SIFTED_AT_ONCE]
            through = np.flatnonzero(self._coarse[self._leading(block)])
            left.append(through[self._fine[self._trailing(block[through])]] + start)
        return np.concatenate(left)

    @cached_property
    def _places(self) -> int:
        """A power of two."""
        return min(MOST_PLACES, 1 << (PLACES_PER_HASH * len(self.hashes)).bit_length())

    @cached_property
    def _shift(self) -> np.uint64:
        return np.uint64((int(self.hashes[-1] - self.hashes[0]) // self._places).bit_length())

    @cached_property
    def _coarse(self) -> npt.NDArray[np.bool_]:
        return _sieve(self._leading(self.hashes))

    @cached_property
    def _fine(self) -> npt.NDArray[np.bool_]:
        return _sieve(self._trailing(self.hashes), self._places)

    # Signed integers, because numpy copies an unsigned index before use.

    def _leading(self, hashes: Hashes) -> Places:
        places: Places = ((hashes - self.hashes[0]) >> self._shift).view(np.int64)
        return places

    def _trailing(self, hashes: Hashes) -> Places:
        return (hashes & np.uint64(self._places - 1)).view(np.int64)


def _sieve(taken: Places, places: int | None = None) -> npt.NDArray[np.bool_]:
    sieve = np.zeros(int(taken[-1]) + 1 if places is None else places, dtype=bool)
    sieve[taken] = True
    return sieve


def found(probes: Hashes, among: Hashes) -> tuple[Rows, Rows]:
    """All pairs of indices with equal hashes. `among` is sorted."""
    at = np.searchsorted(among, probes)
    probe = np.flatnonzero(at < len(among))
    at = at[probe]
    probe_parts, at_parts = [probe[:0]], [at[:0]]
    while len(probe):
        equal = among[at] == probes[probe]
        probe, at = probe[equal], at[equal]
        probe_parts.append(probe)
        at_parts.append(at)
        more = at + 1 < len(among)
        probe, at = probe[more], at[more] + 1
    return np.concatenate(probe_parts), np.concatenate(at_parts)
