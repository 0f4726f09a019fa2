"""How apart from everything else a tenant's program runs here: what the machine allows in, the order for `confine.py` out.

Three degrees: a user and a view of its own (root, with namespaces), a user of its own (root without), or neither, which is
said wherever the platform tells how it is."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.exchange.app_folders import Staging
from millrace.exchange.home import Home
from millrace.manage import confine
from millrace.manage.limits import NICE, Limits
from millrace.staging.users import may_change_user, user_of

TRIAL_SECONDS = 20.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AS_ROOT = "Run the platform as root, or on Kubernetes, where tenants must not see each other."


@dataclass(frozen=True, slots=True)
class Confinement:
    own_user: bool
    own_view: bool
    network: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "own_user": self.own_user,
            "own_view": self.own_view,
            "network": self.network or not self.own_view,
            "warning": self.warning,
        }

    @property
    def warning(self) -> str | None:
        if not self.own_user:
            return (
                "Client apps run as the platform's own user, because the platform is not root: they can read the platform's "
                f"token and the files of every tenant. {_AS_ROOT}"
            )
        if not self.own_view:
            return (
                "Client apps run as users of their own, but this machine allows no namespaces: they see files that everyone "
                f"may read, and the network. {_AS_ROOT}"
            )
        return None

    def order(
        self, staging: Staging, command: tuple[str, ...], env: Mapping[str, str], limits: Limits
    ) -> dict[str, Any]:
        home, tenant = staging.home, staging.tenant
        source_path = "/data" if self.own_view else str(home.sources)
        own = {"CLIENT_ID": tenant, "SOURCE_PATH": source_path, "LOG_PATH": f"{source_path}/{tenant}/log"}
        usual = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"}
        return {
            "parent": os.getpid(),
            "command": list(command),
            "environ": {**usual, **env, **own},
            "folder": "/programs" if self.own_view else str(home.programs),
            "user": user_of(tenant) if self.own_user else None,
            "view": self._view(staging) if self.own_view else None,
            "limits": {"resources": limits.resources, "cores": limits.cores, "nice": NICE},
            "cgroup": limits.cgroup,
        }

    def _view(self, staging: Staging) -> dict[str, Any]:
        return {
            "anchor": str(anchor(staging.home)),
            "tenant": staging.tenant,
            "source": str(staging.root),
            "programs": str(staging.home.programs),
            "hidden": str(staging.home.root.resolve()),
            "network": self.network,
        }


def anchor(home: Home) -> Path:
    """An empty folder on which each program's world is put together, unseen by all others."""
    return home.root.resolve() / "run" / "apps-view"


def launcher() -> list[str]:
    return [sys.executable, "-I", "-S", confine.__file__]


def possible_confinement(home: Home, network: bool) -> Confinement:
    """The best that works here, found out by trying it."""
    home.programs.mkdir(parents=True, exist_ok=True)
    anchor(home).mkdir(parents=True, exist_ok=True)
    if not may_change_user():
        return Confinement(own_user=False, own_view=False)
    best = Confinement(own_user=True, own_view=True, network=network)
    return best if _works(best, home) else Confinement(own_user=True, own_view=False)


def _works(confinement: Confinement, home: Home) -> bool:
    trial = Staging(home, "trial")
    order = confinement.order(trial, ("true",), {}, Limits())
    order["view"] = {**order["view"], "source": str(home.programs)}
    try:
        tried = subprocess.run(
            launcher(), input=json.dumps(order).encode(), capture_output=True, timeout=TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
