"""The one place that derives the names and labels of a tenant's Kubernetes objects."""

from dataclasses import dataclass
from typing import Any

from millrace.k8s.resources import KINDS
from millrace.model.kube_names import dns_name, tenant_namespace

MANAGER = "millrace"
CELL_LABEL, TENANT_LABEL = "millrace/cell", "millrace/tenant"
APP_LABEL = "millrace/app"
TENANT_ANNOTATION = "millrace/tenant-name"


@dataclass(frozen=True, slots=True)
class Names:
    """What the objects of one tenant are called, and the labels by which they are found again."""

    tenant: str
    cell: str
    prefix: str
    app: str | None = None
    """Which of several apps, for what belongs to one of them."""

    @property
    def workload(self) -> str:
        return dns_name(self.tenant) if self.app is None else f"app-{dns_name(self.app)}"

    @property
    def namespace(self) -> str:
        return tenant_namespace(self.prefix, self.tenant)

    anchor = "agreement"
    account = "app"
    policy = "app"
    quota = "agreement"
    claim = "staging"

    @property
    def selector(self) -> dict[str, str]:
        """What tells the app's pods from others; never changes, as a Deployment's selector must not."""
        of_app = {} if self.app is None else {APP_LABEL: dns_name(self.app)}
        return {"app.kubernetes.io/name": "client-app", TENANT_LABEL: dns_name(self.tenant), **of_app}

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
