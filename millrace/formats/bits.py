"""Sets of positions in a text as bits, one word per 64 octets: the operations that the CSV rule needs, at memory speed."""

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Positions = NDArray[np.int64]

_TOP = np.uint64(63)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def where(mask: NDArray[np.bool_]) -> Bits:
    """The positions at which the mask is true."""
    words = np.zeros((len(mask) + 63) // 64 * 8, np.uint8)
    packed = np.packbits(mask, bitorder="little")
    words[: len(packed)] = packed
    return words.view(np.uint64)


def following(bits: Bits, *, start: bool = False) -> Bits:
    """The positions right behind the given ones, and the text's first position if `start`."""
    shifted = bits << _ONE
    shifted[1:] |= bits[:-1] >> _TOP
    if start and len(shifted):
        shifted[0] |= _ONE
    return shifted


def preceding(bits: Bits) -> Bits:
    """The positions right before the given ones."""
    shifted = bits >> _ONE
    shifted[:-1] |= bits[1:] << _TOP
    return shifted


def odd_so_far(bits: Bits) -> Bits:
    """The positions where the count of given positions so far, the position included, is odd."""
    parity = bits.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        parity ^= parity << np.uint64(shift)
    odd_words = np.bitwise_xor.accumulate(parity >> _TOP)
    parity[1:] ^= odd_words[:-1] * _ALL
    return parity


def before(bits: Bits, limit: int) -> Bits:
    """The positions that are smaller than the limit."""
    whole, rest = divmod(limit, 64)
    kept = bits[: whole + (rest > 0)]
    if rest and len(kept) > whole:
        kept = kept.copy()
        kept[whole] &= np.uint64((1 << rest) - 1)
    return kept


def count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum())


def first(bits: Bits) -> int | None:
    words = np.flatnonzero(bits)
    if not len(words):
        return None
    word = int(bits[words[0]])
    return int(words[0]) * 64 + (word & -word).bit_length() - 1


def last(bits: Bits) -> int | None:
    words = np.flatnonzero(bits)
    return int(words[-1]) * 64 + int(bits[words[-1]]).bit_length() - 1 if len(words) else None


def positions(bits: Bits) -> Positions:
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_))
