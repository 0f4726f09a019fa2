"""What the processes of a program's world hold: memory, sockets, and files that lie in none of its folders.

Only process 1 of that world asks, and sees no other processes. Each may end at any moment. Standard library alone."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

# As the kernel calls memory that processes share without a file.
_SHARED = "/dev/zero (deleted)"


def all_processes() -> Iterator[str]:
    return (name for name in os.listdir("/proc") if name.isdigit() and name != "1")


def anonymous_bytes(*, is_exact: bool) -> int:
    """Memory of their own. The exact sum counts each page once, and takes longer."""
    if is_exact:
        return sum(_kilobytes(f"/proc/{process}/smaps_rollup", "Pss_Anon:") for process in all_processes())
    return sum(_kilobytes(f"/proc/{process}/status", "RssAnon:") for process in all_processes())


def _kilobytes(path: str, name: str) -> int:
    with suppress(OSError), open(path) as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
    return 0


def shared_bytes() -> int:
    """As long as they are mapped: their pages stay in memory when a process lets go of them, and no process counts them."""
    ends: dict[str, int] = {}
    for process in all_processes():
        with suppress(OSError), open(f"/proc/{process}/maps") as lines:
            for line in lines:
                if line.endswith(f"{_SHARED}\n"):
                    span, _, offset, _, inode, *_ = line.split()
                    begin, end = (int(part, 16) for part in span.split("-"))
                    ends[inode] = max(ends.get(inode, 0), int(offset, 16) + end - begin)
    return sum(ends.values())


@dataclass(slots=True)
class UsedFiles:
    """`sizes`: of open files that lie in no folder of the program, by their number on the disk."""

    sizes: dict[int, int] = field(default_factory=dict)
    socket_numbers: set[int] = field(default_factory=set)

    @property
    def elsewhere_bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def sockets(self) -> int:
        return len(self.socket_numbers)


def used_files(own: str, device: int) -> UsedFiles:
    """`own`: what all paths of the program's folders begin with; `device`: the disk that they lie on."""
    found = UsedFiles()
    for process in all_processes():
        folder = f"/proc/{process}"
        with suppress(OSError):
            for number in os.listdir(f"{folder}/fd"):
                with suppress(OSError, ValueError):
                    _note(found, folder, number, own, device)
    return found


def _note(found: UsedFiles, folder: str, number: str, own: str, device: int) -> None:
    status = os.stat(f"{folder}/fd/{number}")
    if stat.S_ISSOCK(status.st_mode):
        found.socket_numbers.add(status.st_ino)
    elif stat.S_ISREG(status.st_mode) and status.st_dev == device and _is_elsewhere(status, folder, number, own):
        found.sizes[status.st_ino] = status.st_blocks * 512


def _is_elsewhere(status: os.stat_result, folder: str, number: str, own: str) -> bool:
    """Deleted, or taken by the platform while the program still writes to it."""
    if not status.st_nlink:
        return True
    return not os.readlink(f"{folder}/fd/{number}").startswith(own) and _is_written(f"{folder}/fdinfo/{number}")


def _is_written(path: str) -> bool:
    with open(path) as lines:
        flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY
