"""Merges key files: sorted files in, one sorted run out, in blocks, so that the memory does not grow with the files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from millrace.lake.core_share import CoreShare
from millrace.lake.key_filter import FilterBuilder
from millrace.lake.key_format import KeyLayout
from millrace.lake.key_pages import PageSums
from millrace.lake.keys import COLUMNS, FENCE_ROWS, KeyFile, columns_for, run_name
from millrace.lake.store import Store

# This many key files of one level are merged into one of the next.
FAN_IN = 8
LOWEST_LEVEL_ROWS = 4096
# Rows per step of a merge. It bounds the memory, however long the runs are.
MERGE_BLOCK_ROWS = 1 << 19

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True, eq=False)
class MergeSource:
    """A key file to merge. `answered` are the live files that it covers, and no longer one does."""

    keys: KeyFile
    answered: Sequence[str]
    live_rows: int


def merge_keys(store: Store, sources: Sequence[KeyFile], live: frozenset[str], share: CoreShare | None = None) -> str:
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
        source.read_in_order()
    rows = sum(_kept_rows(source, mapping) for source, mapping in zip(sources, renumbered, strict=True))
    name = run_name(files)
    with store.creating(name) as target:
        run = _RunWriter(target, files, rows)
        for parts in hash_ranges(sources, MERGE_BLOCK_ROWS):
            run.add(_merge_block(parts, renumbered))
            for source in sources:
                source.release()
            if share is not None:
                share.rest()
        run.finish()
    return name


class _RunWriter:
    """Writes the sections of a run side by side, and sums their pages on the way."""

    def __init__(self, target: BinaryIO, files: Sequence[str], rows: int) -> None:
        layout = KeyLayout(files, rows, filtered=True)
        self._target = target
        self._at = {section: offset for section, (_, _, offset) in layout.sections.items()}
        self._sums = {section: PageSums() for section in layout.sections if section != "sums"}
        self._kinds = columns_for(files)
        self._filter = FilterBuilder(rows) if layout.blocks else None
        self._rows = 0
        target.write(layout.header)
        target.truncate(layout.size)

    def add(self, block: dict[str, npt.NDArray[Any]]) -> None:
        for column, kind in self._kinds:
            self._write(column, block[column].astype(kind, copy=False))
        self._write("fences", np.ascontiguousarray(block["h1"][-self._rows % FENCE_ROWS :: FENCE_ROWS]))
        if self._filter is not None and len(block["h1"]):
            self._write("filter", self._filter.add(block["h1"], block["h2"]))
        self._rows += len(block["h1"])

    def finish(self) -> None:
        if self._filter is not None:
            self._write("filter", self._filter.finish())
        self._target.seek(self._at["sums"])
        self._target.write(np.concatenate([sums.finish() for sums in self._sums.values()]).data)

    def _write(self, section: str, values: npt.NDArray[Any]) -> None:
        self._target.seek(self._at[section])
        self._target.write(values.data)
        self._at[section] += values.nbytes
        self._sums[section].add(values)


def _kept_rows(source: KeyFile, mapping: npt.NDArray[np.int32]) -> int:
    if source.file is None:
        return len(source) if mapping[0] >= 0 else 0
    if (mapping >= 0).all():
        return len(source)
    starts = range(0, len(source), MERGE_BLOCK_ROWS)
    blocks = (source.checked_files(start, min(start + MERGE_BLOCK_ROWS, len(source))) for start in starts)
    return sum(int(np.count_nonzero(mapping[block] >= 0)) for block in blocks)


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
    # A damaged hash may move a cut. Then its page is found damaged when its part is made, before anybody uses the result.
    cuts = [[0, *np.searchsorted(source.h1, bounds).tolist(), len(source)] for source in sources]
    for part in range(count):
        yield [source.part(slice(cut[part], cut[part + 1])) for source, cut in zip(sources, cuts, strict=True)]


def _merge_block(parts: Sequence[KeyFile], renumbered: Sequence[npt.NDArray[np.int32]]) -> dict[str, npt.NDArray[Any]]:
    pieces: list[dict[str, npt.NDArray[Any]]] = []
    for part, mapping in zip(parts, renumbered, strict=True):
        file = np.repeat(mapping, len(part)) if part.file is None else mapping[part.file]
        piece = {column: file if column == "file" else getattr(part, column) for column, _ in COLUMNS}
        keep = file >= 0
        pieces.append(piece if keep.all() else {column: values[keep] for column, values in piece.items()})
    joined = {column: np.concatenate([piece[column] for piece in pieces]) for column, _ in COLUMNS}
    # A stable sort of a few sorted pieces is a merge.
    order = np.argsort(joined["h1"], kind="stable")
    return {column: values[order] for column, values in joined.items()}


def due_for_merge(sources: Sequence[MergeSource], most_rows: int | None) -> list[MergeSource] | None:
    """The key files to merge next: a full level, or a run that mostly covers removed files or has no checksums."""
    for level in by_level(sources, lambda source: source.live_rows):
        group = _fitting(level, most_rows)
        if len(group) >= FAN_IN:
            return group
    worn = [
        source for source in sources if 2 * len(source.answered) < len(source.keys.files) or _is_old_run(source.keys)
    ]
    return _fitting(worn, most_rows)[:1] or None


def _is_old_run(keys: KeyFile) -> bool:
    return keys.is_old and len(keys.files) > 1


def _fitting(sources: Sequence[MergeSource], most_rows: int | None) -> list[MergeSource]:
    """The smallest files whose sum is within the limit."""
    ordered = sorted(sources, key=lambda source: len(source.keys))
    if most_rows is None:
        return ordered
    return [
        source
        for source, rows in zip(ordered, accumulate(len(s.keys) for s in ordered), strict=True)
        if rows <= most_rows
    ]
