"""The hashed keys that an import's chunks left, read again: sorted in each chunk, taken together in slices of the hash."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
# So many are compared at a time, so that the largest import takes no more memory than that.
KEYS_AT_ONCE = 8_000_000
_LARGEST = (1 << 64) - 1


def hashed(folder: Path, name: str) -> list[Hashes]:
    """What each chunk left under this name, in the order of the chunks."""
    return [_stored(path, name) for path in sorted(folder.glob("*.npz"))] if folder.is_dir() else []


def _stored(path: Path, name: str) -> Hashes:
    with np.load(path) as stored:
        found: Hashes = stored[name] if name in stored else np.empty(0, np.uint64)
        return found


def slices_of(chunks: Sequence[Hashes]) -> Iterator[list[slice]]:
    """One part of every chunk at a time; equal hashes are in the same part."""
    parts = max(1, -(-sum(map(len, chunks)) // KEYS_AT_ONCE))
    edges = [np.uint64(round(_LARGEST * at / parts)) for at in range(1, parts)]
    borders = [[0, *np.searchsorted(keys, np.array(edges, np.uint64)).tolist(), len(keys)] for keys in chunks]
    for part in range(parts if chunks else 0):
        yield [slice(border[part], border[part + 1]) for border in borders]


def repeated_keys(folder: Path, rule: str) -> int:
    """How many rows have the key of another row of the import, the first of each key not counted."""
    chunks = hashed(folder, rule)
    parts = (
        np.concatenate([keys[part] for keys, part in zip(chunks, parts, strict=True)]) for parts in slices_of(chunks)
    )
    return sum(len(keys) - len(np.unique(keys)) for keys in parts)
