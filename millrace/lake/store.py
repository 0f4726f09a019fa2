"""Files of one table under a root folder: names in, bytes out. All file access of the lake goes through here; `remote.py` is
for tables in object stores. A file appears completely or not at all (temporary file, then link or rename). Refuses names
outside the root.
"""

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from millrace.atomic import flush, sync_file, sync_folder, unfinished
from millrace.lake.bounds import OURS, refuse_larger
from millrace.model.errors import Unavailable
from millrace.outbound.objects import Entry

TEMPORARY_FOLDER = "_millrace/tmp"
# A mapping holds a file descriptor. For small files a copy is cheaper.
MAPPING_THRESHOLD_BYTES = 256 * 1024
# Above the root of a table: the folders of its tenant and of all tables, which a first table makes.
FOLDERS_ABOVE = 3


class Sized(Protocol):
    @property
    def size(self) -> int: ...


class Store:
    """A killed process loses nothing. If it is `durable`, a machine that loses power loses nothing either: a file and its
    name are on the disk when a method that writes returns. So whatever a commit names is there before the commit."""

    bounds = OURS

    def __init__(self, root: Path, durable: bool = False) -> None:
        self.root = Path(os.path.abspath(root))
        self._prefix = f"{self.root}{os.sep}"
        self.durable = durable
        # Folders whose own names are on the disk.
        self._named: set[str] = set()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    @property
    def where(self) -> str:
        """The table's location, for messages."""
        return str(self.root)

    def path(self, name: str) -> str:
        """The absolute path of a name on this machine."""
        full = os.path.normpath(self._prefix + name)
        if not full.startswith(self._prefix):
            raise ValueError(
                f"file name {name!r} leaves the table folder {self.root}; use a relative name without '..'"
            )
        return full

    def file(self, name: str) -> str:
        """The absolute path of a file to be read or deleted. Unavailable if it is a link or a device, or in a folder that is
        one: it may lead out of the table's folder, and other programs may have made it."""
        full = self.path(name)
        with suppress(FileNotFoundError):
            mode = os.lstat(full).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or self._is_linked(name):
                raise Unavailable(
                    f"{name} of the Delta table at {self.where} is no file of the table's folder, but a link or a device.",
                    remedy="Put the file itself there.",
                )
        return full

    def _is_linked(self, name: str) -> bool:
        """Whether a folder of the name is a link."""
        folders = name.split("/")[:-1]
        return any(os.path.islink(self._prefix + "/".join(folders[:end])) for end in range(1, len(folders) + 1))

    def within(self, location: str) -> str | None:
        """The name of a file that is given by its absolute path or address; None if it is not one of the table's."""
        path = os.path.normpath(unquote(urlsplit(location).path) if location.startswith("file:") else location)
        return path.removeprefix(self._prefix) if path.startswith(self._prefix) else None

    def local(self, name: str) -> str:
        """A path on this machine to read the whole file from."""
        return self.file(name)

    def whole(self, name: str) -> str | BinaryIO:
        """A source for pyarrow to read the whole file."""
        return self.local(name)

    def source(self, name: str) -> str | BinaryIO:
        """A source for pyarrow to read parts of the file."""
        return self.file(name)

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """The names whose bytes `local` would have to fetch."""
        return ()

    def expect(self, files: Mapping[str, Sized]) -> None:
        """The table's files by their paths, as its log declares them."""

    def renew(self, name: str) -> bool:
        """Gets a file that turned out to be damaged once more. False if there is no other copy of it."""
        return False

    def prefetch(self, names: Sequence[str]) -> None:
        """Announces names that are needed soon. They need not exist."""

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def identity(self, name: str) -> str | None:
        """Tells this file from another one that takes its place; None if there is none."""
        try:
            status = os.stat(self.path(name))
        except FileNotFoundError:
            return None
        return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"

    def identity_of(self, name: str, size: int) -> str | None:
        """The identity of a file of `size` bytes that was just read or written."""
        return self.identity(name)

    def may_tell(self, name: str) -> bool:
        """Whether values of this file may be in the table's log."""
        return True

    def size(self, name: str) -> int:
        return os.stat(self.path(name)).st_size

    def list(self, folder: str) -> list[Entry]:
        """The files directly in a folder, sorted by name; none if there is no such folder."""
        prefix = f"{folder}/" if folder else ""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.path(folder) if folder else self.root) as entries:
            for entry in entries:
                # A file may be deleted while the folder is read.
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        status = entry.stat()
                        found.append(Entry(prefix + entry.name, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: entry.name)

    def read(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def read_log(self, name: str, most: int | None = None) -> bytes:
        """A file of the log; refused if it has more bytes than its bounds allow, or than `most`."""
        path = self.path(name)
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            self.file(name)
        refuse_larger(self.where, name, status.st_size, most or self.bounds.log_bytes)
        return self.read(name)

    def read_logs(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """The files' bytes, one by one."""
        return (self.read_log(entry.name) for entry in entries)

    def hurry(self, seconds: float) -> None:
        """From now on, no file is asked for later than that, of a table elsewhere."""

    def map(self, name: str) -> memoryview:
        """The file's bytes as a mapping. It stays valid while the result is in use, also after the file is deleted."""
        with open(self.file(name), "rb") as file:
            if os.fstat(file.fileno()).st_size < MAPPING_THRESHOLD_BYTES:
                return memoryview(file.read())
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def digest(self, data: bytes | memoryview) -> str:
        """A name that follows from a file's content."""
        # On processors with SHA instructions this takes half the time of BLAKE2.
        return hashlib.sha256(data).hexdigest()[:24]

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Creates or replaces a file."""
        with self.creating(name) as file:
            file.write(data)

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Creates a file. False if the name is taken; then nothing changed. Of many callers exactly one gets True."""
        target = self.path(name)
        with self._temporary() as (file, temporary):
            file.write(data)
            flush(file, self.durable)
            try:
                try:
                    os.link(temporary, target)
                except FileNotFoundError:
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    os.link(temporary, target)
            except FileExistsError:
                # Its writer may have been killed before the file was on the disk.
                self.secure(name)
                return False
        self._sync_name(target)
        return True

    def secure(self, name: str) -> None:
        """A file that is there survives what all files of this store survive, whoever wrote it."""
        if self.durable:
            with suppress(FileNotFoundError):
                sync_file(self.path(name))
                self._sync_name(self.path(name))

    @contextmanager
    def creating(self, name: str) -> Iterator[BinaryIO]:
        """A seekable file that gets its name if the block ends without an error."""
        with self._temporary() as (file, temporary):
            yield file
            flush(file, self.durable)
            self._place(temporary, name)

    def delete(self, name: str) -> None:
        """Deletes a file, or a link to one. A missing file is no error."""
        if self._is_linked(name):
            self.file(name)
        with suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def _temporary(self) -> AbstractContextManager[tuple[BinaryIO, str]]:
        return unfinished(self.path(TEMPORARY_FOLDER))

    def _place(self, temporary: str, name: str) -> None:
        target = self.path(name)
        try:
            os.replace(temporary, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(temporary, target)
        self._sync_name(target)

    def _sync_name(self, path: str) -> None:
        """The file's name is on the disk, and those of the folders that it is in."""
        if not self.durable:
            return
        folder = os.path.dirname(path)
        sync_folder(folder)
        within = os.path.relpath(folder, self.root)
        depth = FOLDERS_ABOVE + (0 if within == os.curdir else within.count(os.sep) + 1)
        named = []
        for _ in range(depth):
            if folder in self._named:
                break
            named.append(folder)
            folder = os.path.dirname(folder)
            sync_folder(folder)
        # If one of them failed, the next write tries all of them again.
        self._named.update(named)
