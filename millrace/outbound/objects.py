"""What a remote store must be able to do for a table: names below the table's root in, whole objects out.

An object appears whole or not at all. Raises FileNotFoundError for what is not there, and OSError for any other failure."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

READ_AHEAD_BYTES = 256 * 1024
# Of a file whose size nothing declares.
MOST_FETCHED = 4 << 30
# What is read at once.
MOST_READ = 64 << 20
# Of one listing: entries, what their names take, its parts, what one part takes, and how long all of it may last.
MOST_LISTED, MOST_LISTED_BYTES = 200_000, 32 << 20
MOST_PAGES, MOST_PAGE_BYTES = 2_000, 8 << 20
LISTING_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a listing; `modified_at` in seconds since 1970."""

    name: str
    size: int
    modified_at: float


class Objects(Protocol):
    url: str
    """The table's place as its readers name it."""

    def get(self, name: str, most: int = MOST_READ) -> bytes:
        """OSError if it has more than `most` bytes."""

    def get_range(self, name: str, start: int, length: int) -> bytes: ...

    def fetch(self, name: str, path: str, most: int = MOST_FETCHED) -> None:
        """Writes the object into a file, part by part; OSError if it has more than `most` bytes."""

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Creates or replaces an object."""

    def put_file(self, name: str, path: str) -> None:
        """Creates or replaces an object, part by part if it is large."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Creates an object; False if the name is taken. Of many callers at most one gets True, and that one's bytes are
        there. A caller whose answer was lost on its way may get False although its bytes are there."""

    def size(self, name: str) -> int: ...

    def list(self, folder: str) -> Sequence[Entry]:
        """The objects directly in a folder, sorted by name."""

    def delete(self, name: str) -> None:
        """What is not there counts as deleted."""


class RangeReader(io.RawIOBase):
    """An object as a file that can be sought in; reads only what is asked for."""

    def __init__(self, read: Callable[[int, int], bytes | memoryview], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        length = min(len(buffer), self._size - self._position)
        if length <= 0:
            return 0
        data = self._read(self._position, length)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
