"""A table in an object store: the same names as on disk, written through to the objects, read through a folder on this
machine. The folder is a cache: it may be lost at any time, completely or in part.

Log entries are always read from the store. All other shared files have names from their content or random names, so a copy
is never stale. Merged key files and the vacuum's notes are this machine's own."""

import io
import math
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from millrace.lake.bounds import LOG_AHEAD_BYTES, OURS, LogBounds, room
from millrace.lake.checkpoint import LOG_FOLDER
from millrace.lake.copies import CheckedCopies
from millrace.lake.feed import CHANGES_FOLDER
from millrace.lake.keys import RUNS_FOLDER
from millrace.lake.store import TEMPORARY_FOLDER, Sized, Store
from millrace.lake.vacuum import RECORD
from millrace.outbound.objects import READ_AHEAD_BYTES, Entry, Objects, RangeReader

AT_ONCE = 8
REMEMBERED_SIZES = 1000
# Some writers round the sizes of their files.
SLACK_BYTES = 1 << 20
# Vectors and key files, whose sizes the log does not tell.
MOST_UNDECLARED_BYTES = 4 << 30
# A reader may just have received the path of such a copy.
JUST_USED = timedelta(minutes=10)

_OWN = (f"{RUNS_FOLDER}/", f"{TEMPORARY_FOLDER}/", RECORD)
_LOG = f"{LOG_FOLDER}/"


class TooLate(OSError):
    """The store answers too slowly for whoever asks."""


class RemoteStore(Store):
    def __init__(self, folder: Path, objects: Objects, bounds: LogBounds = OURS) -> None:
        super().__init__(folder)
        self.bounds = bounds
        self._remote = objects
        self._until = math.inf
        self._undeclared = MOST_UNDECLARED_BYTES
        # Names that this store has written need no lookup.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._expected: Mapping[str, Sized] = {}
        self._copies = CheckedCopies()

    @property
    def where(self) -> str:
        return self._remote.url

    @property
    def _objects(self) -> Objects:
        if time.monotonic() > self._until:
            raise TooLate(f"the files of {self.where} did not come in time")
        return self._remote

    def hurry(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def within(self, location: str) -> str | None:
        name = location.removeprefix(f"{self.where}/")
        return None if name == location or ".." in name.split("/") else name

    def local(self, name: str) -> str:
        path = self.path(name)
        if self._has_copy(name):
            with suppress(FileNotFoundError):
                # Trimming looks at the last use of a copy.
                os.utime(path)
                return path
        self._fetch(name)
        return path

    def source(self, name: str) -> str | BinaryIO:
        if self._has_copy(name):
            return self.path(name)

        def read(start: int, length: int) -> bytes:
            return self._objects.get_range(name, start, length)

        return io.BufferedReader(RangeReader(read, self._objects.size(name)), READ_AHEAD_BYTES)

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if not self._has_copy(name)]

    def renew(self, name: str) -> bool:
        if name.startswith(_OWN):
            return False
        self._copies.forget(self.path(name))
        super().delete(name)
        self._fetch_if_there(name)
        return os.path.exists(self.path(name))

    def _has_copy(self, name: str) -> bool:
        path = self.path(name)
        if name.startswith(_OWN):
            return os.path.exists(path)
        return self._copies.is_whole(path, lambda size: self._has_size(name, size))

    def _has_size(self, name: str, size: int) -> bool:
        declared = self._declared(name)
        if declared is None:
            # Vectors and key files have checksums.
            return True
        # A writer may have rounded what it declares.
        return size == declared.size or size == self._objects.size(name)

    def _declared(self, name: str) -> Sized | None:
        return self._expected.get(name) or self._expected.get(quote(name, safe="/"))

    def prefetch(self, names: Sequence[str]) -> None:
        missing = self.absent(names)
        if missing:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(self._fetch_if_there, missing))

    def exists(self, name: str) -> bool:
        if name.startswith(_OWN):
            return super().exists(name)
        try:
            self._objects.size(name)
        except FileNotFoundError:
            return False
        return True

    def identity(self, name: str) -> str | None:
        """The object's size: all that every remote store tells of one file."""
        if name.startswith(_OWN):
            return super().identity(name)
        try:
            return str(self._objects.size(name))
        except FileNotFoundError:
            return None

    def identity_of(self, name: str, size: int) -> str | None:
        return super().identity_of(name, size) if name.startswith(_OWN) else str(size)

    def size(self, name: str) -> int:
        if name.startswith(_OWN):
            return super().size(name)
        known = self._sizes.get(name)
        return self._objects.size(name) if known is None else known

    def list(self, folder: str) -> list[Entry]:
        """Deletes the remains of failed uploads, on this machine and in the store."""
        if folder == TEMPORARY_FOLDER:
            return [*super().list(folder), *self._objects.list(folder)]
        return super().list(folder) if f"{folder}/".startswith(_OWN) else [*self._objects.list(folder)]

    def read(self, name: str) -> bytes:
        if name.startswith(_LOG):
            return self.read_log(name)
        if not name.startswith(_OWN):
            self.local(name)
        return super().read(name)

    def read_log(self, name: str, most: int | None = None) -> bytes:
        return self._objects.get(name, most or self.bounds.log_bytes)

    def read_logs(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Some are asked for at once, as many as are small together."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for group in _small_groups(entries):
                yield from pool.map(
                    lambda entry: self.read_log(entry.name, room(entry.size, self.bounds.log_bytes)), group
                )

    def map(self, name: str) -> memoryview:
        if not name.startswith(_OWN):
            self.local(name)
        return super().map(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        if name.startswith(_LOG):
            self._objects.put(name, data)
        else:
            super().write(name, data)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if name.startswith(_OWN):
            return super().put_if_absent(name, data)
        if not self._objects.put_if_absent(name, data):
            return False
        if not name.startswith(_LOG):
            self._remember(name, len(data))
            self._keep(name, data)
        return True

    @contextmanager
    def creating(self, name: str) -> Iterator[BinaryIO]:
        with self._temporary() as (file, temporary):
            yield file
            file.flush()
            if not name.startswith(_OWN):
                self._objects.put_file(name, temporary)
                self._remember(name, os.path.getsize(temporary))
            self._place(temporary, name)

    def adopt(self, name: str, path: Path) -> None:
        """Uploads a file of this machine as a file of the table."""
        self._objects.put_file(name, str(path))
        self._remember(name, path.stat().st_size)
        with suppress(OSError):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            os.link(path, self.path(name))

    def delete(self, name: str) -> None:
        if not name.startswith(_OWN) or name.startswith(TEMPORARY_FOLDER):
            self._objects.delete(name)
        self._sizes.pop(name, None)
        self._copies.forget(self.path(name))
        super().delete(name)

    def trim(self, most_bytes: int, unused_for: timedelta) -> None:
        """Drops copies that were not used for some time, and the oldest beyond a size. Copies in recent use stay."""
        now, kept = time.time(), 0
        copies = [
            entry for folder in ("", CHANGES_FOLDER, *self._copied_folders()) for entry in Store.list(self, folder)
        ]
        for entry in sorted(copies, key=lambda copy: copy.modified_at, reverse=True):
            age = now - entry.modified_at
            kept += entry.size
            if age > unused_for.total_seconds() or (kept > most_bytes and age > JUST_USED.total_seconds()):
                super().delete(entry.name)

    def _copied_folders(self) -> Sequence[str]:
        with suppress(FileNotFoundError), os.scandir(self.path("_millrace")) as entries:
            folders = [f"_millrace/{entry.name}" for entry in entries if entry.is_dir()]
            return [folder for folder in folders if not f"{folder}/".startswith(_OWN)]
        return []

    def _remember(self, name: str, size: int) -> None:
        self._sizes[name] = size
        if len(self._sizes) > REMEMBERED_SIZES:
            self._sizes.popitem(last=False)

    def _fetch_if_there(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fetch(name)

    def _fetch(self, name: str) -> None:
        """The log says how large its data files are. What stands in the place of one may have any size, and the log says
        nothing of vectors and key files: of these, so much may come after each reading of the log."""
        declared = self._declared(name)
        with self._temporary() as (_, temporary):
            if declared is not None:
                self._objects.fetch(name, temporary, declared.size + SLACK_BYTES)
            else:
                self._objects.fetch(name, temporary, self._undeclared)
                self._undeclared -= os.path.getsize(temporary)
            self._place(temporary, name)

    def expect(self, files: Mapping[str, Sized]) -> None:
        self._expected = files
        self._undeclared = MOST_UNDECLARED_BYTES

    def _keep(self, name: str, data: bytes | memoryview) -> None:
        """Keeps a copy if there is room for it. The object exists in any case."""
        with suppress(OSError), self._temporary() as (file, temporary):
            file.write(data)
            file.flush()
            self._place(temporary, name)


def _small_groups(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    group: list[Entry] = []
    size = 0
    for entry in entries:
        size += room(entry.size, LOG_AHEAD_BYTES)
        if group and (len(group) == AT_ONCE or size > LOG_AHEAD_BYTES):
            yield group
            group, size = [], room(entry.size, LOG_AHEAD_BYTES)
        group.append(entry)
    yield group
