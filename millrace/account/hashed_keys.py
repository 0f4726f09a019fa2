"""The hashed keys of an import's chunks, compared: sorted in each chunk, taken together in slices of the hash."""

from collections.abc import Iterator, Sequence

import numpy as np

from millrace.exchange.rule_keys import Hashes

# Compared at a time: bounds the memory, however large the import is.
KEYS_AT_ONCE = 8_000_000
_LARGEST = (1 << 64) - 1


def slices_of(chunks: Sequence[Hashes]) -> Iterator[list[slice]]:
    """One part of every chunk at a time; equal hashes are in the same part."""
    parts = max(1, -(-sum(map(len, chunks)) // KEYS_AT_ONCE))
    edges = [np.uint64(round(_LARGEST * at / parts)) for at in range(1, parts)]
    borders = [[0, *np.searchsorted(keys, np.array(edges, np.uint64)).tolist(), len(keys)] for keys in chunks]
    for part in range(parts if chunks else 0):
        yield [slice(border[part], border[part + 1]) for border in borders]


def repeated_keys(chunks: Sequence[Hashes]) -> int:
    """How many rows repeat the key of an earlier row of the import."""
    parts = (
        np.concatenate([keys[part] for keys, part in zip(chunks, parts, strict=True)]) for parts in slices_of(chunks)
    )
    return sum(len(keys) - len(np.unique(keys)) for keys in parts)
