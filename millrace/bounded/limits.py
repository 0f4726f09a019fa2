"""The bounds of a process, set by itself before it touches what others wrote. The kernel keeps them, also in native code."""

import os
import resource
from pathlib import Path

MIB = 1 << 20
# A machine's memory that all bounded processes together may take.
SHARE_OF_MEMORY = 0.5
_FILES = 64
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def bound_process(memory_bytes: int, written_bytes: int | None = 0) -> None:
    """`memory_bytes` more than it has now; files of `written_bytes` at most, or of any size."""
    bounds = {
        resource.RLIMIT_DATA: _data_bytes() + memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_FSIZE: resource.RLIM_INFINITY if written_bytes is None else written_bytes,
    }
    for kind, most in bounds.items():
        resource.setrlimit(kind, (most, most))


class CpuBound:
    """Processor time, and more of it for every MiB that comes or goes."""

    def __init__(self, seconds: float, seconds_per_mib: float) -> None:
        self._seconds = seconds
        self._per_mib = seconds_per_mib

    def grant(self, size: int) -> None:
        """More time for so many bytes that came or went."""
        self._seconds += self._per_mib * size / MIB
        resource.setrlimit(resource.RLIMIT_CPU, (int(self._seconds), resource.RLIM_INFINITY))


def how_many_fit(memory_bytes: int) -> int:
    """How many processes of this size the machine, or the control group we are in, has memory for; at least two."""
    return max(2, int(_memory() * SHARE_OF_MEMORY) // memory_bytes)


def _memory() -> int:
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, _GROUP_LIMITS):
        limit = path.read_text().strip() if path.is_file() else "max"
        if limit.isdigit():
            found.append(int(limit))
    return min(found)


def _data_bytes() -> int:
    """What this process has of the memory that RLIMIT_DATA bounds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
