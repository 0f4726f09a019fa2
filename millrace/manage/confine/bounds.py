"""Limits that no call of the kernel sets without a cgroup or a quota: what a program and all it starts use in, a breach out.

Process 1 of the program's world looks every quarter of a second; at the disk less often where looking takes long. Standard
library alone."""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from millrace.beneath.folder import Folder, hold
from millrace.manage.confine.processes import UsedFiles, anonymous_bytes, shared_bytes, used_files

LOOK_SECONDS = 0.25
# Of a core, for looking at processes, and again at the disk; but never less often than this.
_SHARE, LONGEST_PAUSE_SECONDS = 0.05, 2.0
# A program that was ended for its disk can remove what it left; until then it may have that, and no more.
CLEARING_SECONDS = 10.0
# What was in `in` before the program began.
MOST_INPUTS = 1_000_000
_LEAST_FILE_BYTES = 4096
_MOST_LEVELS = 64
_IN_MEMORY = ("/tmp", "/dev/shm")
# A socket that nobody reads holds up to about this much of the kernel's memory. Usual programs have a few.
_SOCKET_BYTES, _FREE_SOCKETS = 212_992, 64
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class CannotBeMeasured(Exception):
    """Too many files, or folders too deep in folders: as good as too much."""


class ProgramBounds:
    """`memory_bytes`: None where a cgroup bounds it. `disk_bytes`, `most_files`: what may lie in `out` and `log`, and come
    into `in`. `held`: what its processes hold besides."""

    def __init__(
        self,
        source: str,
        memory_bytes: int | None,
        disk_bytes: int,
        most_files: int,
        held: Callable[[], UsedFiles] = UsedFiles,
    ) -> None:
        self._source = source
        self._memory = memory_bytes
        self._disk = disk_bytes
        self._files = most_files
        self._held = held
        self._look_at = 0.0
        self._inputs = _Contents(MOST_INPUTS)
        # What an earlier run left. Measured without the limit: the program may be about to remove it.
        self._left = _Contents(MOST_INPUTS)
        self._cleared_by = time.monotonic() + CLEARING_SECONDS
        with suppress(CannotBeMeasured):
            self._inputs.add(f"{source}/in")
            self._left.add(f"{source}/out")
            self._left.add(f"{source}/log")

    def breach(self) -> tuple[str | None, float]:
        """What is used beyond its limit, and the seconds until the next look."""
        begun = time.monotonic()
        used = self._held()
        over = self._over_memory(used)
        # A program with very many processes and open files must not make looking at them costly.
        pause = max(LOOK_SECONDS, _pause_after(begun))
        begun = time.monotonic()
        if over is None and begun >= self._look_at:
            over = self._over_disk(used)
            self._look_at = time.monotonic() + _pause_after(begun)
        return over, pause

    def _over_memory(self, files: UsedFiles) -> str | None:
        if self._memory is None:
            return None
        other = sum(_used(place) for place in _IN_MEMORY) + shared_bytes()
        other += max(0, files.sockets - _FREE_SOCKETS) * _SOCKET_BYTES
        # The cheap sum counts pages that processes share several times.
        if other + anonymous_bytes(is_exact=False) <= self._memory:
            return None
        used = other + anonymous_bytes(is_exact=True)
        return None if used <= self._memory else f"{used:,} bytes of memory, and may use {self._memory:,}"

    def _over_disk(self, files: UsedFiles) -> str | None:
        disk, files_left = self._disk, self._files
        if time.monotonic() < self._cleared_by:
            disk, files_left = max(disk, self._left.octets), max(files_left, self._left.files)
        own, inputs = _Contents(files_left), _Contents(self._inputs.files + self._files)
        try:
            own.add(f"{self._source}/out")
            own.add(f"{self._source}/log")
            inputs.add(f"{self._source}/in")
        except CannotBeMeasured as error:
            return str(error)
        added = max(0, inputs.octets - self._inputs.octets)
        used = own.octets + added + files.elsewhere_bytes
        return None if used <= disk else f"{used:,} bytes of disk, and may use {self._disk:,}"


def bounds_of(order: dict[str, Any]) -> ProgramBounds:
    limits = order["limits"]
    source = f"/data/{order['view']['tenant']}"
    held = partial(used_files, f"{source}/", os.stat(f"{source}/out").st_dev)
    return ProgramBounds(source, limits["memory_bytes"], limits["disk_bytes"], limits["files"], held)


def _pause_after(begun: float) -> float:
    return min(LONGEST_PAUSE_SECONDS, (time.monotonic() - begun) / _SHARE)


def _used(place: str) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@dataclass
class _Contents:
    """What lies in folders, up to a number of files."""

    most_files: int
    files: int = 0
    octets: int = 0

    def add(self, path: str) -> None:
        try:
            with hold(Path(path)) as folder:
                self._add(folder, _MOST_LEVELS)
        except OSError as failed:
            raise CannotBeMeasured(f"a folder that cannot be measured: {failed.strerror}") from None

    def _add(self, folder: Folder, levels: int) -> None:
        """Entered level by level: names can be so long that no path leads to what lies beneath."""
        if levels == 0:
            raise CannotBeMeasured(f"folders nested deeper than {_MOST_LEVELS} levels")
        with os.scandir(folder.descriptor) as entries:
            for entry in entries:
                try:
                    self._count(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        with folder.folder(entry.name) as inner:
                            self._add(inner, levels - 1)
                except OSError as failed:
                    # It may have gone. Without room for another open folder nothing can be measured.
                    if failed.errno not in _GONE:
                        raise

    def _count(self, status: os.stat_result) -> None:
        self.octets += max(status.st_blocks * 512, _LEAST_FILE_BYTES)
        self.files += 1
        if self.files > self.most_files:
            raise CannotBeMeasured(f"more than {self.most_files:,} files and folders")
