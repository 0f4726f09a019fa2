"""How apart from everything else a tenant's program runs here: what the machine allows in, the order for the launcher out.

It runs confined or not at all: with namespaces, a read-only view and a filter of system calls, as root under a user of its
own, otherwise in a user namespace. Only if the operator says so in words does it run without."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import millrace
from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.manage.confine import seccomp
from millrace.manage.confine.launch import NOT_CONFINED
from millrace.manage.limits import NICE, Limits
from millrace.model.errors import Refused
from millrace.settings import AppSettings
from millrace.staging.users import may_change_user, user_of

TRIAL_SECONDS = 20.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# mount_setattr, and processes counted per user namespace.
LEAST_KERNEL = (5, 14)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LAUNCH = "import sys; sys.path.append(sys.argv[1]); from millrace.manage.confine.launch import main; main()"
_REMEDY = (
    "Run the platform as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns; in containers also their seccomp profile), or run client apps on "
    "Kubernetes. MILLRACE_APPS__UNCONFINED=true runs them without confinement."
)


class ConfinementKind(StrEnum):
    OWN_USER = "own user"
    USER_NAMESPACE = "user namespace"
    UNCONFINED = "unconfined"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Confinement:
    """`why_not`: what the machine lacks, where programs are not confined."""

    kind: ConfinementKind
    own_user: bool
    settings: AppSettings = field(default_factory=AppSettings)
    why_not: str = ""

    @property
    def own_view(self) -> bool:
        return self.kind in (ConfinementKind.OWN_USER, ConfinementKind.USER_NAMESPACE)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "own_user": self.own_user,
            "own_view": self.own_view,
            "network": self.settings.network or not self.own_view,
            "warning": self.warning,
        }

    @property
    def warning(self) -> str | None:
        if self.kind is ConfinementKind.REFUSED:
            return f"Client apps are not run, because they cannot be confined: {self.why_not}. {_REMEDY}"
        if self.kind is ConfinementKind.UNCONFINED:
            seen = (
                "files that everyone may read, and the network"
                if self.own_user
                else "the platform's token and the files of every tenant"
            )
            return f"Client apps run unconfined, because MILLRACE_APPS__UNCONFINED is true: they see {seen}. Unset it."
        return None

    def refuse(self) -> None:
        """Raises if nothing may run."""
        if self.kind is ConfinementKind.REFUSED:
            raise Refused(f"Client apps cannot be confined here: {self.why_not}.", remedy=_REMEDY, code="not_confined")

    def order(
        self,
        staging: Staging,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: Limits,
        replica: int | None = None,
    ) -> dict[str, Any]:
        """`replica`: which of several it is, if it is one of several; its `in` then has the files that it has claimed."""
        self.refuse()
        home, tenant = staging.home, staging.tenant
        source_path = "/data" if self.own_view else str(staging.source_path)
        own = {"CLIENT_ID": tenant, "SOURCE_PATH": source_path, "LOG_PATH": f"{source_path}/{tenant}/log"}
        if replica is not None:
            # As an indexed Job of Kubernetes has it.
            own["JOB_COMPLETION_INDEX"] = str(replica)
        usual = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"}
        return {
            "parent": os.getpid(),
            "command": list(command),
            "environ": {**usual, **env, **own},
            "folder": "/programs" if self.own_view else str(home.programs),
            "user": user_of(tenant) if self.own_user else None,
            "view": self._view(staging, replica) if self.own_view else None,
            "limits": {
                "resources": limits.resources,
                "cores": limits.cores,
                "nice": NICE,
                "memory_bytes": limits.memory_bytes,
                "disk_bytes": limits.disk_bytes,
                "files": limits.files,
            },
            "cgroup": limits.cgroup,
        }

    def _view(self, staging: Staging, replica: int | None) -> dict[str, Any]:
        home = staging.home
        return {
            "anchor": str(anchor(home)),
            "tenant": staging.tenant,
            "user": user_of(staging.tenant),
            "source": str(staging.root),
            "inbox": str(staging.inbox if replica is None else staging.claimed(replica)),
            "programs": str(home.programs),
            "others": sorted(_tenants(home) - {staging.tenant}),
            "shown": _shown(self.settings),
            "hidden": str(home.root.resolve()),
            "network": self.settings.network,
            "scratch_mb": self.settings.scratch_mb,
        }


def _tenants(home: Home) -> set[str]:
    return {path.name for path in home.sources.iterdir()} if home.sources.is_dir() else set()


def _shown(settings: AppSettings) -> list[str]:
    """The machine's programs and libraries, and the platform's Python; outer folders first."""
    python = (sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix))
    return sorted({*_SYSTEM, *python, *map(str, settings.shown)})


def anchor(home: Home) -> Path:
    """An empty folder on which each program's world is put together, unseen by all others."""
    return home.root.resolve() / "run" / "apps-view"


def launcher() -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(Path(millrace.__file__).parents[1])]


def possible_confinement(home: Home, settings: AppSettings) -> Confinement:
    """What works here, found out by trying it."""
    home.programs.mkdir(parents=True, exist_ok=True)
    anchor(home).mkdir(parents=True, exist_ok=True)
    own_user = may_change_user()
    if settings.unconfined:
        return Confinement(ConfinementKind.UNCONFINED, own_user, settings)
    best = Confinement(ConfinementKind.OWN_USER if own_user else ConfinementKind.USER_NAMESPACE, own_user, settings)
    why_not = _lacking() or _failure(best, home)
    return Confinement(ConfinementKind.REFUSED, own_user, settings, why_not) if why_not else best


def _lacking() -> str:
    if sys.platform != "linux":
        return f"{platform.system()} has no namespaces"
    machine, release = os.uname().machine, os.uname().release
    if not seccomp.knows(machine):
        return f"the system calls of {machine} are not known"
    major, minor = (int("".join(filter(str.isdigit, part)) or 0) for part in (*release.split(".")[:2], "0")[:2])
    return "" if (major, minor) >= LEAST_KERNEL else f"Linux {release} is older than 5.14"


@contextmanager
def _trial_folder(home: Home) -> Iterator[Path]:
    """With the folders that a program has."""
    with tempfile.TemporaryDirectory(dir=anchor(home).parent) as folder:
        for name in ("in", "out", "log"):
            Path(folder, name).mkdir()
        yield Path(folder)


def _failure(confinement: Confinement, home: Home) -> str:
    """Of a trial with a program that does nothing; empty if it works."""
    trial = Staging(home, "trial")
    order = confinement.order(trial, ("true",), {}, Limits())
    with _trial_folder(home) as source:
        order["view"] |= {"source": str(source), "inbox": str(source / "in")}
        try:
            tried = subprocess.run(
                launcher(),
                input=json.dumps(order).encode(),
                capture_output=True,
                timeout=TRIAL_SECONDS,
                check=False,
                env={},
            )
        except (OSError, subprocess.TimeoutExpired) as failed:
            return str(failed)
    if tried.returncode == 0:
        return ""
    said = tried.stderr.decode(errors="replace").strip().splitlines() or [f"code {tried.returncode}"]
    return said[-1].removeprefix(f"millrace: {NOT_CONFINED}: ")
