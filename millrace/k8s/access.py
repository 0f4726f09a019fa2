"""How to reach a cluster: a kubeconfig or the pod's own account in, an address with credentials out."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from millrace.model.errors import Invalid

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Credential:
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """PEM texts, not files; without an authority the system's own are trusted."""

    server: str
    authority: str | None = None
    verify: bool = True
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    password: tuple[str, str] | None = field(default=None, repr=False)

    def bearer(self) -> str | None:
        """A pod's token changes while it runs, so a file is read each time."""
        return _text(self.token_file).strip() if self.token_file is not None else self.token


def find_access(
    context: str | None = None, environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT_FOLDER
) -> Access:
    """KUBECONFIG, else ~/.kube/config, else the account of the pod we are in."""
    files = _kubeconfigs(environ)
    if files:
        return _from_kubeconfigs(files, context, environ)
    if "KUBERNETES_SERVICE_HOST" in environ and (account / "token").is_file():
        return _from_pod(environ, account)
    raise Invalid(
        "No cluster is known: there is no kubeconfig, and this is no pod of one.",
        remedy="Set KUBECONFIG, or put the file at ~/.kube/config.",
        code="no_cluster",
    )


def _kubeconfigs(environ: Mapping[str, str]) -> list[Path]:
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    missing = [path for path in named if not path.is_file()]
    if named and len(missing) == len(named):
        raise Invalid(f"{missing[0]}, which KUBECONFIG names, does not exist.", remedy="Correct KUBECONFIG.")
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    return [path for path in named if path.is_file()] or ([usual] if usual.is_file() else [])


def _from_pod(environ: Mapping[str, str], account: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    shown = f"[{host}]" if ":" in host else host
    return Access(f"https://{shown}:{port}", (account / "ca.crt").read_text(), token_file=account / "token")


def _from_kubeconfigs(files: list[Path], context: str | None, environ: Mapping[str, str]) -> Access:
    config = _Config(files)
    name = context or config.current
    if not name:
        raise Invalid("No context of the kubeconfig is chosen.", remedy="Name one with --context.")
    chosen = config.named("contexts", name)
    cluster = config.named("clusters", str(chosen.get("cluster")))
    user = config.named("users", str(chosen.get("user"))) if chosen.get("user") else {}
    if not isinstance(cluster.get("server"), str):
        raise Invalid(f"The cluster of context {name!r} has no server.", remedy="Correct the kubeconfig.")
    given = _credential(user, cluster, environ)
    return Access(
        server=cluster["server"].rstrip("/"),
        authority=_pem(cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        token=given.token,
        token_file=Path(user["tokenFile"]) if "tokenFile" in user and not given.token else None,
        certificate=given.certificate,
        key=given.key,
        password=(str(user["username"]), str(user.get("password", ""))) if "username" in user else None,
    )


def _credential(user: Mapping[str, Any], cluster: Mapping[str, Any], environ: Mapping[str, str]) -> Credential:
    if "auth-provider" in user:
        raise Invalid(
            "The kubeconfig logs in by `auth-provider`, which Kubernetes has dropped.",
            remedy="Write the file anew with your cloud's tool; it will name an `exec` plugin.",
        )
    if "exec" in user:
        return _ask_plugin(user["exec"], cluster, environ)
    return Credential(user.get("token"), _pem(user, "client-certificate"), _pem(user, "client-key"))


def _ask_plugin(section: Mapping[str, Any], cluster: Mapping[str, Any], environ: Mapping[str, str]) -> Credential:
    """Clouds hand out short-lived credentials through a program. It runs as kubectl runs it, and never asks questions."""
    version = str(section.get("apiVersion", "client.authentication.k8s.io/v1"))
    spec: dict[str, Any] = {"interactive": False}
    if section.get("provideClusterInfo"):
        spec["cluster"] = {name: value for name, value in cluster.items() if name != "extensions"}
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    more = {str(one["name"]): str(one["value"]) for one in section.get("env") or []}
    command = [str(section["command"]), *map(str, section.get("args") or [])]
    try:
        ran = subprocess.run(
            command,
            env={**environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PLUGIN_SECONDS,
            check=True,
        )
        status = json.loads(ran.stdout)["status"]
        return Credential(status.get("token"), status.get("clientCertificateData"), status.get("clientKeyData"))
    except subprocess.CalledProcessError as failed:
        raise _not_logged_in(command, failed.stderr.decode(errors="replace").strip()[-500:]) from None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError, AttributeError) as failed:
        raise _not_logged_in(command, str(failed)) from None


def _not_logged_in(command: list[str], why: str) -> Invalid:
    hint = "Install it, or log in with your cloud's tool, and try again."
    return Invalid(
        f"{command[0]}, which should log in to the cluster, failed: {why}", remedy=hint, code="no_credential"
    )


def _pem(section: Mapping[str, Any], name: str) -> str | None:
    """Given as text, or as a file that is named."""
    if section.get(f"{name}-data"):
        try:
            return base64.b64decode(section[f"{name}-data"], validate=True).decode()
        except ValueError:
            raise Invalid(f"{name}-data of the kubeconfig is not base64.", remedy="Correct the kubeconfig.") from None
    return _text(Path(section[name])) if section.get(name) else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as failed:
        raise Invalid(f"{file}, which the kubeconfig names, cannot be read: {failed}.", remedy="Correct it.") from None


class _Config:
    """Several files are one: the first that names a thing wins. Paths are relative to the file they stand in."""

    def __init__(self, files: list[Path]) -> None:
        self.current = ""
        self._sections: dict[str, dict[str, dict[str, Any]]] = {"contexts": {}, "clusters": {}, "users": {}}
        for file in files:
            self._add(file)

    def named(self, section: str, name: str) -> dict[str, Any]:
        found = self._sections[section].get(name)
        if found is None:
            known = ", ".join(sorted(self._sections[section])) or "none"
            raise Invalid(f"The kubeconfig has no {section[:-1]} {name!r}.", remedy=f"There are: {known}.")
        return found

    def _add(self, file: Path) -> None:
        try:
            document = yaml.safe_load(file.read_text()) or {}
            self.current = self.current or str(document.get("current-context") or "")
            for section, singular in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
                for entry in document.get(section) or []:
                    value = {key: _absolute(key, part, file) for key, part in (entry.get(singular) or {}).items()}
                    self._sections[section].setdefault(str(entry["name"]), value)
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, UnicodeDecodeError) as wrong:
            raise Invalid(f"{file} is no kubeconfig: {' '.join(str(wrong).split())}.", remedy="Correct it.") from None


def _absolute(key: str, value: Any, file: Path) -> Any:
    is_file = key in ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    return str(file.parent / value) if is_file and value else value
