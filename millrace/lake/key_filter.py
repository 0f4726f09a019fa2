"""A filter for each large key file: key hashes in; for wanted ones, whether the file may have them. About one absent key in a
hundred passes. It is a blocked Bloom filter: a key is looked up in one block of 32 bytes, so it reads one page.

The block follows from the leading bits of the hash. Rows are sorted by it, so a filter is built in one pass, and keys that
are wanted together are looked up in order."""

import numpy as np
import numpy.typing as npt

BITS_PER_KEY = 10
WORDS = 8
BLOCK_BYTES = 4 * WORDS
# Keys per step of building it: their masks take 32 bytes each.
_AT_ONCE = 1 << 16
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)
_HALF = np.uint64(32)

U64 = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]


def block_count(keys: int) -> int:
    return max(1, -(-keys * BITS_PER_KEY // (8 * BLOCK_BYTES)))


def blocks_of(h1: U64, count: int) -> npt.NDArray[np.int64]:
    """The block of each key, in the order of the hashes."""
    return (((h1 >> _HALF) * np.uint64(count)) >> _HALF).view(np.int64)


def _masks(h2: U64) -> Words:
    bits = ((h2 >> _HALF).astype(np.uint32)[:, None] * _SALTS) >> np.uint32(27)
    masks: Words = np.left_shift(np.uint32(1), bits, dtype=np.uint32)
    return masks


def may_have(words: Words, blocks: npt.NDArray[np.int64], h2: U64) -> npt.NDArray[np.bool_]:
    """For each key, whether its block has all its bits."""
    masks = _masks(h2)
    passes: npt.NDArray[np.bool_] = ((words.reshape(-1, WORDS)[blocks] & masks) == masks).all(axis=1)
    return passes


class FilterBuilder:
    """Keys in the order of their hashes in, piece by piece; finished blocks out, in order."""

    def __init__(self, keys: int) -> None:
        self.count = block_count(keys)
        self._next = 0
        self._open: Words = np.zeros(WORDS, dtype=np.uint32)

    def add(self, h1: U64, h2: U64) -> Words:
        """The words of all blocks before that of the last key."""
        parts = [
            self._add(h1[start : start + _AT_ONCE], h2[start : start + _AT_ONCE])
            for start in range(0, len(h1), _AT_ONCE)
        ]
        return np.concatenate([np.empty(0, dtype=np.uint32), *parts])

    def finish(self) -> Words:
        left = np.zeros((self.count - self._next, WORDS), dtype=np.uint32)
        left[0] = self._open
        return left.ravel()

    def _add(self, h1: U64, h2: U64) -> Words:
        blocks = blocks_of(h1, self.count)
        last = int(blocks[-1])
        words = np.zeros((last + 1 - self._next, WORDS), dtype=np.uint32)
        starts = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
        words[blocks[starts] - self._next] = np.bitwise_or.reduceat(_masks(h2), starts, axis=0)
        words[0] |= self._open
        self._next, self._open = last, words[-1].copy()
        return words[:-1].ravel()
