"""Limits that no call of the kernel sets without a cgroup or a quota: what a program and all it starts use in, a breach out.

Process 1 of the program's world looks every quarter of a second, less often where looking itself takes long. The number of
files is limited too, so a look ends soon. Standard library alone."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.beneath.folder import Folder, hold

LOOK_SECONDS = 0.25
# Of a core, for looking.
_SHARE = 0.05
LONGEST_PAUSE_SECONDS = 5.0
# In `out` and `log`, and again as many new ones in `in`. Looking at so many takes less than a second.
MOST_FILES = 100_000
# What was in `in` before the program began.
MOST_INPUTS = 1_000_000
_LEAST_FILE_BYTES = 4096
_MOST_LEVELS = 64
_IN_MEMORY = ("/tmp", "/dev/shm")


class CannotBeMeasured(Exception):
    """Too many files, or folders too deep in folders."""


class ProgramBounds:
    """`memory_bytes`: None where a cgroup bounds it. `disk_bytes`: what may lie in `out` and `log`, and come into `in`."""

    def __init__(self, source: str, memory_bytes: int | None, disk_bytes: int) -> None:
        self._source = source
        self._memory = memory_bytes
        self._disk = disk_bytes
        self._device = os.stat(f"{source}/out").st_dev
        self._inputs = _Contents(MOST_INPUTS)
        with suppress(CannotBeMeasured):
            self._inputs.add(f"{source}/in")

    def breach(self) -> tuple[str | None, float]:
        """What is used beyond its limit, and the seconds until the next look."""
        begun = time.monotonic()
        found = self._over_memory() or self._over_disk()
        return found, min(max(LOOK_SECONDS, (time.monotonic() - begun) / _SHARE), LONGEST_PAUSE_SECONDS)

    def _over_memory(self) -> str | None:
        if self._memory is None:
            return None
        files = sum(_used(place) for place in _IN_MEMORY)
        # The cheap sum counts pages that processes share several times.
        if files + sum(map(_about, _processes())) <= self._memory:
            return None
        used = files + sum(map(_exactly, _processes()))
        return None if used <= self._memory else f"{used:,} bytes of memory, and may use {self._memory:,}"

    def _over_disk(self) -> str | None:
        own, inputs = _Contents(MOST_FILES), _Contents(self._inputs.files + MOST_FILES)
        try:
            own.add(f"{self._source}/out")
            own.add(f"{self._source}/log")
            inputs.add(f"{self._source}/in")
        except CannotBeMeasured as error:
            return str(error)
        added = max(0, inputs.octets - self._inputs.octets)
        used = own.octets + added + sum(self._unnamed(process) for process in _processes())
        return None if used <= self._disk else f"{used:,} bytes of disk, and may use {self._disk:,}"

    def _unnamed(self, process: str) -> int:
        """Files that it has open and deleted: they take space until it closes them."""
        total = 0
        with suppress(OSError):
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    status = os.stat(f"/proc/{process}/fd/{number}")
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == self._device:
                        total += status.st_blocks * 512
        return total


def bounds_of(order: dict[str, Any]) -> ProgramBounds:
    return ProgramBounds(
        f"/data/{order['view']['tenant']}", order["limits"]["memory_bytes"], order["limits"]["disk_bytes"]
    )


def _processes() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit() and name != "1")


def _about(process: str) -> int:
    return _kilobytes(f"/proc/{process}/status", ("RssAnon:", "RssShmem:"))


def _exactly(process: str) -> int:
    return _kilobytes(f"/proc/{process}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))


def _kilobytes(path: str, names: tuple[str, ...]) -> int:
    # It may have ended.
    with suppress(OSError), open(path) as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(names)) * 1024
    return 0


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
        with hold(Path(path)) as folder:
            self._add(folder, _MOST_LEVELS)

    def _add(self, folder: Folder, levels: int) -> None:
        """Entered level by level: names can be so long that no path leads to what lies beneath."""
        if levels == 0:
            raise CannotBeMeasured(f"folders nested deeper than {_MOST_LEVELS} levels")
        with os.scandir(folder.descriptor) as entries:
            for entry in entries:
                # It may have gone.
                with suppress(OSError):
                    self._count(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        with folder.folder(entry.name) as inner:
                            self._add(inner, levels - 1)

    def _count(self, status: os.stat_result) -> None:
        self.octets += max(status.st_blocks * 512, _LEAST_FILE_BYTES)
        self.files += 1
        if self.files > self.most_files:
            raise CannotBeMeasured(f"more than {self.most_files:,} files and folders")
