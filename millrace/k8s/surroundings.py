"""What an app runs in: a namespace of its own, bounds, a wall around it, and the volume it shares with the platform."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from millrace.k8s.names import Names
from millrace.k8s.pods import bounded, pull_secrets, total
from millrace.k8s.workloads import most_pods
from millrace.model.agreement import Agreement
from millrace.model.quantity import LARGEST, bytes_text
from millrace.settings import KubernetesSettings

_SMALLEST_CLAIM = 1 << 20
_LINK_LOCAL = {4: ip_network("169.254.0.0/16"), 6: ip_network("fd00:ec2::/32")}
_DNS_PORTS = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]


def namespace(names: Names) -> dict[str, Any]:
    manifest = names.manifest("Namespace", names.namespace)
    guards = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {**manifest, "metadata": {**manifest["metadata"], "labels": {**names.labels, **guards}}}


def anchor(names: Names) -> dict[str, Any]:
    """Owns the others: when it goes, they go."""
    return names.manifest("ConfigMap", names.anchor, data={"tenant": names.tenant})


def service_account(names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    return names.manifest("ServiceAccount", names.account, automountServiceAccountToken=False, **pull_secrets(settings))


def resource_quota(apps: Sequence[Agreement], names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    """`apps`: the agreement as it is for each of the tenant's apps, which run at the same time."""
    agreement, pods = apps[0], sum(map(most_pods, apps))
    each = [(bounded(one.tenant, one.resources, settings), most_pods(one)) for one in apps]
    hard = {
        "pods": str(pods),
        **{
            f"requests.{name}": amount for name, amount in total([(one.requests, times) for one, times in each]).items()
        },
        **{f"limits.{name}": amount for name, amount in total([(one.limits, times) for one, times in each]).items()},
        "limits.ephemeral-storage": bytes_text(pods * settings.app_scratch_mb << 20),
        "persistentvolumeclaims": "1",
        "requests.storage": bytes_text(_claimed(agreement, settings)),
        "services": "0",
    }
    return names.manifest("ResourceQuota", names.quota, spec={"hard": hard})


def network_policy(names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    """Nothing comes in; nothing goes out but to the networks that the settings allow."""
    allowed = [{"ipBlock": _block(network)} for network in settings.egress]
    egress = [{"to": allowed}, {"ports": _DNS_PORTS}] if allowed else []
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": egress}
    return names.manifest("NetworkPolicy", names.policy, spec=spec)


def _block(network: IPv4Network | IPv6Network) -> dict[str, Any]:
    """Clouds hand out the machine's own credentials at a link-local address: never to an app."""
    local = _LINK_LOCAL[network.version]
    inside = network.version == local.version and local.subnet_of(network)  # type: ignore[arg-type]
    return {"cidr": str(network), **({"except": [str(local)]} if inside else {})}


def volume_claim(agreement: Agreement, names: Names, settings: KubernetesSettings) -> dict[str, Any]:
    storage = {"storageClassName": settings.storage_class} if settings.storage_class else {}
    size = {"requests": {"storage": bytes_text(_claimed(agreement, settings))}}
    spec = {"accessModes": [settings.access_mode], **storage, "resources": size}
    return names.manifest("PersistentVolumeClaim", names.claim, spec=spec)


def _claimed(agreement: Agreement, settings: KubernetesSettings) -> int:
    agreed = agreement.quotas.storage_bytes
    return min(LARGEST, max(_SMALLEST_CLAIM, settings.staging_mb << 20 if agreed is None else agreed))
