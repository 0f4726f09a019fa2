"""Clouds hand out short-lived credentials through a program that the kubeconfig names: its section in, a credential out."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.model.errors import Invalid

PLUGIN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Credential:
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)


def ask_plugin(section: Mapping[str, Any], cluster: Mapping[str, Any], environ: Mapping[str, str]) -> Credential:
    """Runs it as kubectl does, and never lets it ask questions."""
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
        raise _refused(command, failed.stderr.decode(errors="replace").strip()[-500:]) from None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError, AttributeError) as failed:
        raise _refused(command, str(failed)) from None


def _refused(command: list[str], why: str) -> Invalid:
    hint = "Install it, or log in with your cloud's tool, and try again."
    return Invalid(
        f"{command[0]}, which should log in to the cluster, failed: {why}", remedy=hint, code="no_credential"
    )
