"""The kinds that Millrace puts on a cluster: where the API serves them, in the order in which they are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Kind:
    """`holds_data`: goes only when that is asked for. `is_wall`: goes with its namespace alone, since pods that are told to
    stop still run for a while. Neither has an owner with which it would go."""

    name: str
    api: str
    plural: str
    namespaced: bool = True
    holds_data: bool = False
    is_wall: bool = False

    def folder(self, namespace: str | None = None) -> str:
        """Of one namespace, or with none of all of them."""
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        return f"{root}/namespaces/{quote(namespace)}/{self.plural}" if namespace else f"{root}/{self.plural}"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("Namespace", "v1", "namespaces", namespaced=False, holds_data=True),
        Kind("ConfigMap", "v1", "configmaps"),
        Kind("ServiceAccount", "v1", "serviceaccounts"),
        Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies", is_wall=True),
        Kind("ResourceQuota", "v1", "resourcequotas"),
        Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims", holds_data=True),
        Kind("CronJob", "batch/v1", "cronjobs"),
        Kind("Deployment", "apps/v1", "deployments"),
        Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers"),
    )
}


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object: two manifests with the same key are the same object."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any], kind: str | None = None) -> "Key":
        metadata = manifest["metadata"]
        return cls(kind or manifest["kind"], metadata.get("namespace", ""), metadata["name"])

    @property
    def path(self) -> str:
        return f"{KINDS[self.kind].folder(self.namespace or None)}/{quote(self.name)}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
