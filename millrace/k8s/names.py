"""The one place that derives Kubernetes names and labels from a tenant's name.

A tenant's name may hold capitals and '_' and end in '-', which Kubernetes allows in no name; where a name must be changed or
cut, a digest of the whole is added, and a name that looks as if it ended in one gets one too: two tenants never meet."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from millrace.k8s.resources import KINDS
from millrace.model.names import checked_name

# A CronJob's name may have 52 characters, a namespace's 63, which the prefix shares.
MAX_DNS_NAME = 40
_DIGEST_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGEST_LENGTH = 10
_PLAIN = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_LOOKS_DIGESTED = re.compile(rf".*-[{_DIGEST_LETTERS}]{{{_DIGEST_LENGTH}}}")

MANAGER = "millrace"
CELL_LABEL, TENANT_LABEL = "millrace/cell", "millrace/tenant"
TENANT_ANNOTATION = "millrace/tenant-name"


def dns_name(tenant: str) -> str:
    """A DNS-1123 label that no other tenant has."""
    name = checked_name("tenant", tenant)
    if _PLAIN.fullmatch(name) and len(name) <= MAX_DNS_NAME and not _LOOKS_DIGESTED.fullmatch(name):
        return name
    readable = name.lower().replace("_", "-")[: MAX_DNS_NAME - _DIGEST_LENGTH - 1].rstrip("-")
    return f"{readable}-{_digest(name)}"


def _digest(name: str) -> str:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return "".join(_DIGEST_LETTERS[number >> 5 * place & 31] for place in range(_DIGEST_LENGTH))


@dataclass(frozen=True, slots=True)
class Names:
    """What the objects of one tenant are called, and the labels by which they are found again."""

    tenant: str
    cell: str
    prefix: str

    @property
    def workload(self) -> str:
        return dns_name(self.tenant)

    @property
    def namespace(self) -> str:
        return f"{self.prefix}-{self.workload}"

    anchor = "agreement"
    account = "app"
    policy = "app"
    quota = "agreement"
    claim = "staging"

    @property
    def selector(self) -> dict[str, str]:
        """What tells the app's pods from others; never changes, as a Deployment's selector must not."""
        return {"app.kubernetes.io/name": "client-app", TENANT_LABEL: self.workload}

    @property
    def labels(self) -> dict[str, str]:
        return {"app.kubernetes.io/managed-by": MANAGER, CELL_LABEL: self.cell, **self.selector}

    def manifest(self, kind: str, name: str, **parts: Any) -> dict[str, Any]:
        where = {"namespace": self.namespace} if KINDS[kind].namespaced else {}
        annotations = {TENANT_ANNOTATION: self.tenant}
        metadata = {"name": name, **where, "labels": self.labels, "annotations": annotations}
        return {"apiVersion": KINDS[kind].api, "kind": kind, "metadata": metadata, **parts}


def cell_selector(cell: str) -> str:
    """The label selector that finds everything of a cell."""
    return f"app.kubernetes.io/managed-by={MANAGER},{CELL_LABEL}={cell}"
