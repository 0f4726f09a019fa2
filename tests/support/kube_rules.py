"""What an API server checks beyond the shape of a manifest, written from its documentation: names, labels, quantities,
references between objects, and the `restricted` pod security standard. Manifests in, problems out."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millrace.model.cron import parse_cron, parse_zone
from millrace.model.errors import Invalid

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[mkMGTPE]|[eE][0-9]+)?")
_TEMPLATES = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "Job": ("spec", "template"),
}
Manifest = Mapping[str, Any]


def rule_problems(manifests: Iterable[Manifest]) -> list[str]:
    """Of one tenant's manifests together, since some name others."""
    every = list(manifests)
    found = [f"{one['kind']}: {problem}" for one in every for problem in _problems(one, every)]
    keys = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in every]
    return found + [f"{key} is there twice" for key in set(keys) if keys.count(key) > 1]


def _problems(manifest: Manifest, every: list[Manifest]) -> Iterator[str]:
    yield from _metadata(manifest)
    kind, spec = manifest["kind"], manifest.get("spec", {})
    if kind == "CronJob":
        yield from _cron(manifest["metadata"]["name"], spec)
    if kind in ("Deployment", "StatefulSet"):
        labels = spec["template"]["metadata"]["labels"]
        if not spec["selector"]["matchLabels"].items() <= labels.items():
            yield "its selector does not match its pods"
    if kind == "HorizontalPodAutoscaler":
        target = spec["scaleTargetRef"]
        deployments = [
            one for one in every if (one["kind"], one["metadata"]["name"]) == (target["kind"], target["name"])
        ]
        if not deployments or any("replicas" in one["spec"] for one in deployments):
            yield "what it scales is not there, or says its replicas itself"
        if not 1 <= spec["minReplicas"] <= spec["maxReplicas"]:
            yield "its bounds are empty"
    for path, amount in _quantities(spec):
        if not _QUANTITY.fullmatch(str(amount)):
            yield f"{path} {amount!r} is no quantity"
    if kind in _TEMPLATES:
        claimed = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", [])}
        yield from _pod(_at(manifest, _TEMPLATES[kind])["spec"], kind, every, claimed)


def _at(manifest: Manifest, path: tuple[str, ...]) -> Any:
    value: Any = manifest
    for part in path:
        value = value[part]
    return value


def _metadata(manifest: Manifest) -> Iterator[str]:
    metadata = manifest["metadata"]
    rule = _LABEL if manifest["kind"] in ("Namespace", "Service") else _SUBDOMAIN
    if not rule.fullmatch(metadata["name"]):
        yield f"{metadata['name']!r} is no name"
    if "namespace" in metadata and not _LABEL.fullmatch(metadata["namespace"]):
        yield f"{metadata['namespace']!r} is no namespace"
    for key, value in metadata.get("labels", {}).items():
        if not _LABEL_KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            yield f"{key}={value!r} is no label"


def _cron(name: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if len(name) > 52:
        yield "its name leaves no room for the names of its jobs"
    if spec["concurrencyPolicy"] not in ("Allow", "Forbid", "Replace"):
        yield f"concurrencyPolicy is {spec['concurrencyPolicy']!r}"
    try:
        parse_cron(spec["schedule"])
        parse_zone(spec["timeZone"])
    except Invalid as wrong:
        yield wrong.message


def _quantities(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("requests", "limits", "hard") and isinstance(part, dict):
                yield from ((f"{path}.{key}.{name}", amount) for name, amount in part.items())
            elif key == "sizeLimit":
                yield f"{path}.{key}", part
            else:
                yield from _quantities(part, f"{path}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from _quantities(part, f"{path}[]")


def _pod(pod: Mapping[str, Any], kind: str, every: list[Manifest], claimed: set[str]) -> Iterator[str]:
    allowed = ("Never", "OnFailure") if kind in ("CronJob", "Job") else ("Always",)
    if pod.get("restartPolicy", "Always") not in allowed:
        yield f"restartPolicy is {pod.get('restartPolicy')!r}"
    yield from _restricted(pod)
    volumes = {one["name"]: one for one in pod.get("volumes", [])}
    claims = {one["metadata"]["name"] for one in every if one["kind"] == "PersistentVolumeClaim"}
    for volume in volumes.values():
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in claims:
            yield f"it mounts the claim {claim}, which is not there"
    accounts = {one["metadata"]["name"] for one in every if one["kind"] == "ServiceAccount"}
    if pod.get("serviceAccountName", "default") not in accounts | {"default"}:
        yield f"its account {pod['serviceAccountName']} is not there"
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        yield from _container(container, claimed | set(volumes))


def _container(container: Mapping[str, Any], volumes: set[str]) -> Iterator[str]:
    mounts = container.get("volumeMounts", [])
    yield from (f"{one['name']} is mounted, but is no volume" for one in mounts if one["name"] not in volumes)
    paths = [one["mountPath"] for one in mounts]
    if len(set(paths)) != len(paths) or any(":" in path for path in paths):
        yield f"mount paths {paths}"
    names = [one["name"] for one in container.get("env", [])]
    yield from (f"{name!r} is no variable" for name in names if not _ENV.fullmatch(name))
    if len(set(names)) != len(names):
        yield "a variable is set twice"
    if not container["image"] or container["image"] != container["image"].strip():
        yield f"image {container['image']!r}"


def _restricted(pod: Mapping[str, Any]) -> Iterator[str]:
    """Pod Security Standards, `restricted`, and three rules of our own: no token, no writable root, bounded."""
    if any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "it shares its host's namespaces"
    yield from (
        f"volume {volume['name']} is of a forbidden kind"
        for volume in pod.get("volumes", [])
        if not set(volume) & {"persistentVolumeClaim", "emptyDir", "configMap", "secret", "projected"}
    )
    context = pod.get("securityContext", {})
    if not context.get("runAsNonRoot") or context.get("runAsUser") == 0:
        yield "it may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "it has no seccomp profile"
    if pod.get("automountServiceAccountToken", True):
        yield "it gets a token of the cluster"
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation", True) or own.get("privileged"):
            yield f"{container['name']} may gain privileges"
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own.get("capabilities", {}).get("add"):
            yield f"{container['name']} keeps capabilities"
        if not own.get("readOnlyRootFilesystem"):
            yield f"{container['name']} may write to its root"
        if not {"cpu", "memory"} <= set(container.get("resources", {}).get("limits", {})):
            yield f"{container['name']} is not bounded"
