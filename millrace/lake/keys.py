"""Key files: the sorted key hashes of one data file (its sidecar) or of many (a merged run), with position and version.
Arrays in, an immutable file out, and back as memory maps. A damaged file counts as missing.
"""

import hashlib
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from millrace.lake.store import Store

KEYS_FOLDER = "_millrace/keys"
RUNS_FOLDER = "_millrace/runs"
# This many key files of one level are merged into one of the next.
FAN_IN = 8
LOWEST_LEVEL_ROWS = 4096
# Rows per step of a merge. It bounds the memory, however long the runs are.
MERGE_BLOCK_ROWS = 1 << 19

Source = TypeVar("Source")

_MAGIC = b"MRKEYS01"
_HEADER = struct.Struct("<8sQ")
_SIDECAR_HEADER = 64 << 10
_COLUMNS = (("h1", "<u8"), ("h2", "<u8"), ("version", "<i8"), ("position", "<u4"), ("file", "<u4"))


@dataclass(frozen=True, slots=True, eq=False)
class KeyFile:
    """Rows sorted by `h1`. A key occurs at most once per data file. `file` is an index into `files`."""

    files: tuple[str, ...]
    h1: npt.NDArray[np.uint64]
    h2: npt.NDArray[np.uint64]
    version: npt.NDArray[np.int64]
    position: npt.NDArray[np.uint32]
    file: npt.NDArray[np.uint32] | None = None
    name: str | None = None

    def __len__(self) -> int:
        return len(self.h1)

    def files_of(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
        return np.zeros(len(rows), dtype=np.uint32) if self.file is None else self.file[rows]

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> "KeyFile":
        """Some of the rows; a view of them if they are a slice."""
        file = None if self.file is None else self.file[rows]
        return KeyFile(
            self.files, self.h1[rows], self.h2[rows], self.version[rows], self.position[rows], file, self.name
        )

    def release(self) -> None:
        """Frees the mapped pages that were read. They stay in the page cache and come back from there."""
        content: Any = self.h1.base
        if isinstance(content, memoryview) and isinstance(content.obj, mmap.mmap):
            content.obj.madvise(mmap.MADV_DONTNEED)


def sidecar_name(data_file: str) -> str:
    return f"{KEYS_FOLDER}/{data_file}.keys"


def run_name(files: Sequence[str]) -> str:
    """A run is named by the files it covers: merging the same files always writes the same run."""
    digest = hashlib.blake2b("\n".join(files).encode(), digest_size=16).hexdigest()
    return f"{RUNS_FOLDER}/{digest}.keys"


def write_keys(store: Store, name: str, keys: KeyFile) -> None:
    with store.creating(name) as file:
        file.write(_header(keys.files, len(keys)))
        for column, _ in _columns_for(keys.files):
            file.write(np.ascontiguousarray(getattr(keys, column)).data)
            file.write(bytes(-file.tell() % 8))


def read_keys(store: Store, name: str) -> KeyFile | None:
    """None if the file is missing, truncated or not a key file."""
    try:
        content = store.map(name)
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    magic, length = _HEADER.unpack(content[: _HEADER.size])
    # Only a run, which this machine wrote, names many files.
    longest = len(content) if name.startswith(RUNS_FOLDER) else _SIDECAR_HEADER
    if magic != _MAGIC or length > min(longest, len(content) - _HEADER.size):
        return None
    try:
        header = orjson.loads(content[_HEADER.size : _HEADER.size + length])
        files, rows = tuple(header["files"]), int(header["rows"])
        offsets, end = _layout(files, rows)
    except (ValueError, LookupError, TypeError, OverflowError):
        return None
    if len(content) != end or rows < 0:
        return None
    arrays: dict[str, Any] = {
        column: np.frombuffer(content, dtype=kind, count=rows, offset=offsets[column])
        for column, kind in _columns_for(files)
    }
    return KeyFile(files=files, name=name, **arrays)


def merge_keys(store: Store, sources: Sequence[KeyFile], live: frozenset[str]) -> str:
    """Writes the sources' rows of live files as one run, and returns its name."""
    files = tuple(sorted({file for source in sources for file in source.files if file in live}))
    number = {file: index for index, file in enumerate(files)}
    # Two runs may overlap: then a file is in several sources, and the first one gives its rows.
    taken: set[str] = set()
    renumbered = []
    for source in sources:
        mapping = np.array([number[f] if f in number and f not in taken else -1 for f in source.files], dtype=np.int32)
        taken.update(source.files)
        renumbered.append(mapping)
    kept = [_kept_rows(source, mapping) for source, mapping in zip(sources, renumbered, strict=True)]
    name = run_name(files)
    with store.creating(name) as target:
        _merge_into(target, files, sources, renumbered, sum(kept))
    return name


def _kept_rows(source: KeyFile, mapping: npt.NDArray[np.int32]) -> int:
    if source.file is None:
        return len(source) if mapping[0] >= 0 else 0
    if (mapping >= 0).all():
        return len(source)
    blocks = (source.file[start : start + MERGE_BLOCK_ROWS] for start in range(0, len(source), MERGE_BLOCK_ROWS))
    return sum(int(np.count_nonzero(mapping[block] >= 0)) for block in blocks)


def _merge_into(
    target: BinaryIO,
    files: tuple[str, ...],
    sources: Sequence[KeyFile],
    renumbered: Sequence[npt.NDArray[np.int32]],
    rows: int,
) -> None:
    offsets, end = _layout(files, rows)
    target.write(_header(files, rows))
    target.truncate(end)
    written = 0
    for parts in hash_ranges(sources, MERGE_BLOCK_ROWS):
        block = _merge_block(parts, renumbered)
        for column, kind in _columns_for(files):
            target.seek(offsets[column] + written * np.dtype(kind).itemsize)
            target.write(block[column].astype(kind, copy=False).data)
        written += len(block["h1"])
        for source in sources:
            source.release()


def by_level(sources: Iterable[Source], rows: Callable[[Source], int]) -> list[list[Source]]:
    """The sources of each level, the lowest level first. A level has files of similar size."""
    levels: dict[int, list[Source]] = {}
    for source in sources:
        level, size = 0, rows(source)
        while size > LOWEST_LEVEL_ROWS:
            level, size = level + 1, size // FAN_IN
        levels.setdefault(level, []).append(source)
    return [levels[level] for level in sorted(levels)]


def hash_ranges(sources: Sequence[KeyFile], most_rows: int) -> Iterator[list[KeyFile]]:
    """Views of all sources, one range of hashes after the other, each of about `most_rows` rows in total. All rows of a key
    are in one range. Hashes are uniform, so equal ranges are equal work."""
    count = max(1, -(-sum(len(source) for source in sources) // most_rows))
    bounds = np.array([(part << 64) // count for part in range(1, count)], dtype=np.uint64)
    cuts = [[0, *np.searchsorted(source.h1, bounds).tolist(), len(source)] for source in sources]
    for part in range(count):
        yield [source.part(slice(cut[part], cut[part + 1])) for source, cut in zip(sources, cuts, strict=True)]


def _merge_block(parts: Sequence[KeyFile], renumbered: Sequence[npt.NDArray[np.int32]]) -> dict[str, npt.NDArray[Any]]:
    pieces: list[dict[str, npt.NDArray[Any]]] = []
    for part, mapping in zip(parts, renumbered, strict=True):
        file = np.repeat(mapping, len(part)) if part.file is None else mapping[part.file]
        piece = {column: file if column == "file" else getattr(part, column) for column, _ in _COLUMNS}
        keep = file >= 0
        pieces.append(piece if keep.all() else {column: values[keep] for column, values in piece.items()})
    joined = {column: np.concatenate([piece[column] for piece in pieces]) for column, _ in _COLUMNS}
    # A stable sort of a few sorted pieces is a merge.
    order = np.argsort(joined["h1"], kind="stable")
    return {column: values[order] for column, values in joined.items()}


def _columns_for(files: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return _COLUMNS if len(files) != 1 else _COLUMNS[:-1]


def _header(files: Sequence[str], rows: int) -> bytes:
    header = orjson.dumps({"files": list(files), "rows": rows})
    header += b" " * (-(_HEADER.size + len(header)) % 8)
    return _HEADER.pack(_MAGIC, len(header)) + header


def _layout(files: Sequence[str], rows: int) -> tuple[dict[str, int], int]:
    offsets, end = {}, len(_header(files, rows))
    for column, kind in _columns_for(files):
        offsets[column] = end
        end += rows * np.dtype(kind).itemsize
        end += -end % 8
    return offsets, end
