"""What a tenant's program may use: the agreement's limits in, what the machine can hold it to out, and by which means.

A cgroup (version 2) bounds CPU and memory of the program and all it starts together. Where none can be made, memory is
bounded per process by the kernel and in all by the launcher, and CPU by the number of cores. Files, processes and disk are
bounded in both cases."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from millrace.model.agreement import Amounts
from millrace.settings import AppSettings

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
OPEN_FILES = 1024
# Below the platform's own work when both want the cores.
NICE = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """What the launcher is told; `means` says it to people. `memory_bytes`: None where a cgroup bounds it."""

    cgroup: str | None = None
    resources: dict[str, int] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    means: dict[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    disk_bytes: int = 1 << 40
    files: int = 100_000


class Limiter:
    """`root` is where the machine's cgroups are; None or unusable: limits per process. `is_confined`: the launcher looks
    after the program. `own_user`: its processes are not the platform's."""

    def __init__(
        self,
        root: Path | None = CGROUPS,
        *,
        is_confined: bool = True,
        own_user: bool = True,
        settings: AppSettings | None = None,
    ) -> None:
        self._parent = None if root is None else _parent_group(root)
        self._is_confined = is_confined
        self._own_user = own_user
        self._settings = settings or AppSettings()

    @property
    def means(self) -> str:
        return "cgroup v2" if self._parent is not None else "rlimits and cores"

    @property
    def kept_bytes(self) -> int:
        return self._settings.kept_mb << 20

    def limits(self, slug: str, agreed: Amounts, replica: int | None = None) -> Limits:
        """Each of several replicas may use as much as one."""
        slug = slug if replica is None else f"{slug}~{replica}"
        usual, disk = self._settings, self._settings.disk_mb << 20
        cpu = usual.cpu_millis if agreed.cpu_millis is None else agreed.cpu_millis
        memory = usual.memory_mb << 20 if agreed.memory_bytes is None else agreed.memory_bytes
        resources = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": OPEN_FILES, "RLIMIT_FSIZE": disk}
        looking = ", and in all by looking" if self._is_confined else ""
        means = {"disk": f"{disk} bytes per file by rlimit{looking}", "processes": "no limit"}
        if self._is_confined or self._own_user:
            # Counted per user and user namespace: among the platform's own it would refuse the next fork of anything.
            resources["RLIMIT_NPROC"] = usual.processes
            means["processes"] = f"{usual.processes} by rlimit"
        if self._parent is not None:
            group = str(self._group(self._parent, slug, cpu, memory))
            return Limits(group, resources, (), {**means, **_by_cgroup(cpu, memory)}, None, disk, usual.files)
        resources["RLIMIT_DATA"] = memory
        cores = _cores(cpu)
        means["cpu"] = f"{len(cores)} of the machine's cores, for {cpu}m" if cores else "no limit"
        means["memory"] = f"{memory} bytes per process by rlimit{looking}"
        return Limits(None, resources, cores, means, memory, disk, usual.files)

    def release(self, slug: str) -> None:
        """The group goes with the last process in it; those of replicas too."""
        for group in (
            [] if self._parent is None else [self._parent / f"app-{slug}", *self._parent.glob(f"app-{slug}~*")]
        ):
            with suppress(OSError):
                group.rmdir()

    def _group(self, parent: Path, slug: str, cpu: int, memory: int) -> Path:
        group = parent / f"app-{slug}"
        group.mkdir(exist_ok=True)
        (group / "cpu.max").write_text(f"{max(cpu * PERIOD_US // 1000, 1000)} {PERIOD_US}")
        (group / "memory.max").write_text(str(memory))
        for name, value in (("memory.oom.group", "1"), ("memory.swap.max", "0")):
            with suppress(OSError):
                (group / name).write_text(value)
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


def _cores(cpu: int) -> tuple[int, ...]:
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return tuple(mine[: max(1, -(-cpu // 1000))])


def _by_cgroup(cpu: int, memory: int) -> dict[str, str]:
    return {"cpu": f"{cpu}m by cgroup v2", "memory": f"{memory} bytes in all by cgroup v2"}
