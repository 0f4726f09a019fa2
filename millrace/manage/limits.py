"""CPU and memory of a tenant's program: the agreement's limits in, what the machine can hold it to out, and by which means.

A cgroup (version 2) bounds the program and all it starts together. Where none can be made, memory is bounded per process and
CPU by the number of cores."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from millrace.model.agreement import Amounts

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
PROCESSES, OPEN_FILES = 256, 1024
# Below the platform's own work when both want the cores.
NICE = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What `confine.py` is told; `means` says it to people."""

    cgroup: str | None = None
    resources: dict[str, int] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    means: dict[str, str] = field(default_factory=dict)


class Limiter:
    """`root` is where the machine's cgroups are; None or unusable: limits per process."""

    def __init__(self, root: Path | None = CGROUPS, own_user: bool = True) -> None:
        self._parent = None if root is None else _parent_group(root)
        self._own_user = own_user

    @property
    def means(self) -> str:
        return "cgroup v2" if self._parent is not None else "rlimits and cores"

    def limits(self, tenant: str, most: Amounts) -> Limits:
        resources = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": OPEN_FILES}
        if self._own_user:
            # Counted per user: among the platform's own processes it would refuse the next fork of anything.
            resources["RLIMIT_NPROC"] = PROCESSES
        if self._parent is not None:
            return Limits(str(self._group(self._parent, tenant, most)), resources, (), _by_cgroup(most))
        if most.memory_bytes is not None:
            resources["RLIMIT_DATA"] = most.memory_bytes
        return Limits(None, resources, _cores(most), _by_process(most))

    def release(self, tenant: str) -> None:
        """The group goes with the last process in it."""
        if self._parent is not None:
            with suppress(OSError):
                (self._parent / f"app-{tenant}").rmdir()

    def _group(self, parent: Path, tenant: str, most: Amounts) -> Path:
        group = parent / f"app-{tenant}"
        group.mkdir(exist_ok=True)
        quota = "max" if most.cpu_millis is None else str(max(most.cpu_millis * PERIOD_US // 1000, 1000))
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        (group / "memory.max").write_text("max" if most.memory_bytes is None else str(most.memory_bytes))
        with suppress(OSError):
            (group / "memory.oom.group").write_text("1")
        return group


def _parent_group(root: Path) -> Path | None:
    """A group of ours whose members may be limited, made if that is allowed."""
    parent = root / "millrace"
    try:
        if not {"cpu", "memory"} <= set((root / "cgroup.controllers").read_text().split()):
            return None
        (root / "cgroup.subtree_control").write_text("+cpu +memory")
        parent.mkdir(exist_ok=True)
        (parent / "cgroup.subtree_control").write_text("+cpu +memory")
    except OSError:
        return None
    return parent


def _cores(most: Amounts) -> tuple[int, ...]:
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if most.cpu_millis is None or not mine:
        return ()
    return tuple(mine[: max(1, -(-most.cpu_millis // 1000))])


def _by_cgroup(most: Amounts) -> dict[str, str]:
    return {
        "cpu": "no limit" if most.cpu_millis is None else f"{most.cpu_millis}m by cgroup v2",
        "memory": "no limit" if most.memory_bytes is None else f"{most.memory_bytes} bytes in all by cgroup v2",
    }


def _by_process(most: Amounts) -> dict[str, str]:
    cores = _cores(most)
    return {
        "cpu": f"{len(cores)} of the machine's cores, for {most.cpu_millis}m" if cores else "no limit",
        "memory": "no limit" if most.memory_bytes is None else f"{most.memory_bytes} bytes per process by rlimit",
    }
