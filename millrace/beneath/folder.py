"""Folders that other people's programs write: a folder in, a handle out, and what lies beneath is reached through it alone.

A program may put a link in the place of any name at any moment. A path would follow it; nothing here does: a folder is held
by its descriptor, what lies in it is named by one name, and a link on the way is an OSError (ELOOP or ENOTDIR)."""

import heapq
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from millrace.beneath.opening import checked, opened_beneath, rename_new

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# So often a link in the place of a folder of ours is removed before it is given up.
_TRIES = 3


class Folder:
    """Whoever opens it closes it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)

    def folder(self, path: str) -> "Folder":
        """One below this; "" is this one once more."""
        return Folder(opened_beneath(self.descriptor, path))

    def make(self, name: str, mode: int) -> "Folder":
        """The folder of this name, made if it is missing. A link in its place is removed; whatever else is there is not."""
        for _ in range(_TRIES):
            try:
                os.mkdir(checked(name), mode, dir_fd=self.descriptor)
            except FileExistsError:
                if self._is_link(name):
                    with suppress(OSError):
                        self.unlink(name)
                    continue
            break
        return self.folder(name)

    def entries(self) -> list[tuple[str, os.stat_result]]:
        """What lies in it, by name; what goes meanwhile is left out."""
        with os.scandir(self.descriptor) as entries:
            names = sorted(entry.name for entry in entries)
        return self._statuses(names)

    def first(self, most: int, is_wanted: Callable[[str], bool]) -> list[tuple[str, os.stat_result]]:
        """The first `most` of what is wanted, by name. Only these names are held: a program may have filled the folder."""
        with os.scandir(self.descriptor) as entries:
            names = heapq.nsmallest(most, (entry.name for entry in entries if is_wanted(entry.name)))
        return self._statuses(names)

    def _statuses(self, names: list[str]) -> list[tuple[str, os.stat_result]]:
        found: list[tuple[str, os.stat_result]] = []
        for name in names:
            with suppress(FileNotFoundError):
                found.append((name, self.status(name)))
        return found

    def status(self, path: str = "") -> os.stat_result:
        """Of a link its own; without a path that of the folder."""
        if not path:
            return os.fstat(self.descriptor)
        with self._above(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """A link exists, wherever it leads."""
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, mode: int = 0o600) -> BinaryIO:
        """A new file. Fails if anything has this name already."""
        return os.fdopen(os.open(checked(name), _NEW, mode, dir_fd=self.descriptor), "wb")

    def link(self, name: str, other: str) -> None:
        """A second name. Fails if anything has that already."""
        here = self.descriptor
        os.link(checked(name), checked(other), src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        os.unlink(checked(name), dir_fd=self.descriptor)

    def rmdir(self, name: str) -> None:
        os.rmdir(checked(name), dir_fd=self.descriptor)

    def move_out(self, path: str, target: Path) -> None:
        """Renames what lies at the path to a place of the platform's own; a link moves as a link."""
        with self._above(path) as (folder, name):
            os.rename(name, target, src_dir_fd=folder)

    def move_to(self, name: str, folder: "Folder", other: str) -> None:
        """Into another folder, without replacing anything there: FileExistsError if the other name is taken."""
        rename_new(checked(name), checked(other), self.descriptor, folder.descriptor)

    def rename_new(self, name: str, other: str) -> None:
        """Without replacing anything: FileExistsError if the other name is taken."""
        rename_new(checked(name), checked(other), self.descriptor)

    def _is_link(self, name: str) -> bool:
        try:
            return stat.S_ISLNK(self.status(name).st_mode)
        except FileNotFoundError:
            return False

    @contextmanager
    def _above(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder that holds what lies at the path, and its name there."""
        above, _, name = path.rpartition("/")
        if not above:
            yield self.descriptor, checked(name)
            return
        with self.folder(above) as folder:
            yield folder.descriptor, checked(name)


def enter(folder: Path) -> Folder:
    """The folder of this name, not what a link of this name leads to. The path above it is the platform's own."""
    with hold(folder.parent) as parent:
        return parent.folder(folder.name)


def hold(folder: Path) -> Folder:
    """One whose path is the platform's own: the operator may have put links there."""
    return Folder(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def is_plain(status: os.stat_result) -> bool:
    """Of a regular file with one name: no device, no link, no second name of another user's file."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
