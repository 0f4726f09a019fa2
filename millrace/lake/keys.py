"""Key files: the sorted key hashes of one data file (its sidecar) or of many (a merged run), with position and version.
Wanted key hashes in, the rows that have them out. Of a large file few pages are read, and each is checked before its first
use.
"""

import hashlib
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.lake.key_filter import WORDS, blocks_of, may_have
from millrace.lake.key_pages import PAGE_BYTES, CheckedPages
from millrace.lake.matching import SEARCH_COST, WantedHashes, found

KEYS_FOLDER = "_millrace/keys"
RUNS_FOLDER = "_millrace/runs"
FENCE_ROWS = PAGE_BYTES // 8
# Wanted keys whose pages are copied together.
PROBED_AT_ONCE = 2048
# If so few pages lie between the wanted keys, for each of them, all these pages are searched where they are.
DENSE_PAGES = 4
# If so many of a few wanted keys pass the filter, the others are not asked for.
_SAMPLE, _MOST_PASSING = 64, 0.5

COLUMNS = (("h1", "<u8"), ("h2", "<u8"), ("version", "<i8"), ("position", "<u4"), ("file", "<u4"))
_FOUND_COLUMNS = ("version", "position", "file")

U64 = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class KeyFile:
    """Rows sorted by `h1`. A key occurs once in a file of ours; others may repeat it. `file` is an index into `files`.
    `pages` is None if there is nothing to check: all was checked when it was opened, or the file has no checksums."""

    files: tuple[str, ...]
    h1: U64
    h2: U64
    version: npt.NDArray[np.int64]
    position: npt.NDArray[np.uint32]
    file: npt.NDArray[np.uint32] | None = None
    name: str | None = None
    pages: CheckedPages | None = None
    fences: U64 | None = None
    filter: npt.NDArray[np.uint32] | None = None
    is_old: bool = False

    def __len__(self) -> int:
        return len(self.h1)

    def files_of(self, rows: Rows) -> npt.NDArray[np.uint32]:
        return np.zeros(len(rows), dtype=np.uint32) if self.file is None else self.file[rows]

    def part(self, rows: slice | npt.NDArray[np.bool_]) -> "KeyFile":
        """Some of the rows; a view of them if they are a slice. They are checked."""
        if self.pages is not None and isinstance(rows, slice):
            for column, _ in columns_for(self.files):
                self.pages.check_range(column, rows.start, rows.stop)
        file = None if self.file is None else self.file[rows]
        return KeyFile(
            self.files, self.h1[rows], self.h2[rows], self.version[rows], self.position[rows], file, self.name
        )

    def find(self, sought: WantedHashes, h2: U64) -> tuple[Rows, Rows]:
        """The pairs of wanted keys and rows with the same hashes. Of a large file it reads few pages."""
        if self.pages is None or self.fences is None:
            key, row = sought.pairs(self.h1)
        elif len(self) > SEARCH_COST * len(sought.hashes):
            key, row = self._search(self.pages, self.fences, sought.hashes, h2)
        else:
            key, row = self._compare(self.pages, self.fences, sought)
        self._check_rows(("h2",), row)
        same = self.h2[row] == h2[key]
        key, row = key[same], row[same]
        self._check_rows(_FOUND_COLUMNS, row)
        return key, row

    def checked_files(self, start: int, end: int) -> npt.NDArray[np.uint32]:
        """The numbers of the files of some rows."""
        assert self.file is not None
        if self.pages is not None:
            self.pages.check_range("file", start, end)
        return self.file[start:end]

    def check(self) -> None:
        """Reads all of it. DamagedKeys if it is not what was written."""
        if self.pages is not None:
            self.pages.check_all()

    def release(self) -> None:
        """Frees the mapped pages that were read. They stay in the page cache and come back from there."""
        self.advise(mmap.MADV_DONTNEED)

    def read_in_order(self) -> None:
        """Announces that all of it will be read, from the beginning to the end."""
        self.advise(mmap.MADV_SEQUENTIAL)

    def _compare(self, pages: CheckedPages, fences: U64, sought: WantedHashes) -> tuple[Rows, Rows]:
        """For many keys: all rows in their range."""
        ours = sought.hashes
        if not len(ours) or not len(self):
            return sought.pairs(self.h1)
        first = max(0, int(np.searchsorted(fences, ours[0])) - 1) * FENCE_ROWS
        end = min(len(self), int(np.searchsorted(fences, ours[-1], side="right")) * FENCE_ROWS)
        pages.check_range("h1", first, end)
        key, row = sought.pairs(self.h1[first:end])
        return key, row + first

    def _search(self, pages: CheckedPages, fences: U64, wanted: U64, h2: U64) -> tuple[Rows, Rows]:
        """For few keys: only the pages where they would be."""
        asked = self._passing(pages, wanted, h2)
        key_parts, row_parts = [asked[:0]], [asked[:0]]
        for start in range(0, len(asked), PROBED_AT_ONCE):
            some = asked[start : start + PROBED_AT_ONCE]
            first = np.maximum(np.searchsorted(fences, wanted[some]) - 1, 0)
            last = np.maximum(np.searchsorted(fences, wanted[some], side="right") - 1, first)
            if last[-1] - first[0] < DENSE_PAGES * len(some):
                begin, end = int(first[0]) * FENCE_ROWS, min(len(self), (int(last[-1]) + 1) * FENCE_ROWS)
                pages.check_range("h1", begin, end)
                key, row = found(wanted[some], self.h1[begin:end])
                row = row + begin
            else:
                near = _between(first, last)
                pages.check_pages("h1", near)
                rows = (near[:, None] * FENCE_ROWS + np.arange(FENCE_ROWS)).ravel()
                rows = rows[: np.searchsorted(rows, len(self))]
                key, at = found(wanted[some], self.h1[rows])
                row = rows[at]
            key_parts.append(some[key])
            row_parts.append(row)
        return np.concatenate(key_parts), np.concatenate(row_parts)

    def _passing(self, pages: CheckedPages, wanted: U64, h2: U64) -> Rows:
        every = np.arange(len(wanted))
        if self.filter is None:
            return every
        blocks = blocks_of(wanted, len(self.filter) // WORDS)
        for asked in (every[:: max(1, len(every) // _SAMPLE)], every):
            pages.check_rows("filter", blocks[asked] * WORDS)
            passing = may_have(self.filter, blocks[asked], h2[asked])
            if len(asked) > 1 and np.count_nonzero(passing) > _MOST_PASSING * len(asked):
                return every
        return every[passing]

    def _check_rows(self, columns: Sequence[str], rows: Rows) -> None:
        if self.pages is not None:
            for column in columns:
                if getattr(self, column) is not None:
                    self.pages.check_rows(column, rows)

    def advise(self, advice: int, start: int = 0) -> None:
        """Tells the kernel how the mapped file is going to be read, from an offset on."""
        content: Any = self.h1.base
        if isinstance(content, memoryview) and isinstance(content.obj, mmap.mmap):
            content.obj.madvise(advice, start, len(content) - start)


def _between(first: Rows, last: Rows) -> Rows:
    """All numbers from each first to its last, once each and in order."""
    counts = last - first + 1
    return np.unique(np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts))


def sidecar_name(data_file: str) -> str:
    return f"{KEYS_FOLDER}/{data_file}.keys"


def run_name(files: Sequence[str]) -> str:
    """A run is named by the files it covers: merging the same files always writes the same run."""
    digest = hashlib.blake2b("\n".join(files).encode(), digest_size=16).hexdigest()
    return f"{RUNS_FOLDER}/{digest}.keys"


def columns_for(files: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return COLUMNS if len(files) != 1 else COLUMNS[:-1]
