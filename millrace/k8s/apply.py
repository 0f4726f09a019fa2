"""Makes a cluster hold what was rendered: rendered tenants in, one outcome per object out.

1. Everything of the cell is listed: what is there already, and what may be pruned.
2. Per tenant, the namespace and the anchor come first; the others name the anchor as their owner, so that they go with it.
3. What is refused is told and stops nothing but what stands on it.
4. What was listed, belongs to a tenant in scope and was not rendered is pruned: workloads first, what guards them after,
   and what holds data only when that is asked for."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from millrace.k8s.cluster import KubernetesCluster, Object
from millrace.k8s.names import TENANT_ANNOTATION, TENANT_LABEL, cell_selector
from millrace.k8s.render import Manifest, Rendered
from millrace.k8s.resources import KINDS, Key
from millrace.model.errors import Clash, Refused

TENANTS_AT_ONCE = 8
_NEEDED_BY_OTHERS = ("Namespace", "ConfigMap")
_COMPARED = ("spec", "data", "automountServiceAccountToken", "imagePullSecrets")
_COMPARED_METADATA = ("labels", "annotations", "ownerReferences")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`what`: created, changed, unchanged, pruned, kept, refused, skipped."""

    tenant: str
    key: Key
    what: str
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Orders:
    """`everyone`: what was rendered is all there is, so tenants that are missing from it are gone."""

    everyone: bool = False
    prune: bool = False
    with_data: bool = False
    force: bool = False
    dry_run: bool = False


Inventory = dict[Key, Object]


def apply(cluster: KubernetesCluster, tenants: list[Rendered], cell: str, orders: Orders) -> Iterator[Outcome]:
    there = {
        Key.of(found, kind.name): found for kind in KINDS.values() for found in cluster.list(kind, cell_selector(cell))
    }
    with ThreadPoolExecutor(TENANTS_AT_ONCE) as pool:
        for outcomes in pool.map(lambda one: _apply_tenant(cluster, one, there, orders), tenants):
            yield from outcomes
    if orders.prune:
        yield from _prune(cluster, tenants, there, orders)


def _apply_tenant(cluster: KubernetesCluster, tenant: Rendered, there: Inventory, orders: Orders) -> list[Outcome]:
    outcomes: list[Outcome] = []
    owner: Object | None = None
    for manifest in tenant.manifests:
        key = Key.of(manifest)
        stuck = next((one.key for one in outcomes if one.what == "refused" and one.key.kind in _NEEDED_BY_OTHERS), None)
        if stuck is not None:
            outcomes.append(Outcome(tenant.names.tenant, key, "skipped", f"it needs {stuck}"))
            continue
        if orders.dry_run and key.namespace and Key("Namespace", "", key.namespace) not in there:
            outcomes.append(Outcome(tenant.names.tenant, key, "created"))
            continue
        try:
            held, is_new = cluster.apply(_owned(cluster, manifest, owner, there), force=orders.force)
        except Refused as refused:
            outcomes.append(_refused(tenant.names.tenant, key, refused))
            continue
        owner = held if key.kind == "ConfigMap" else owner
        outcomes.append(Outcome(tenant.names.tenant, key, _what(held, there.get(key), is_new)))
    return outcomes


def _owned(cluster: KubernetesCluster, manifest: Manifest, owner: Object | None, there: Inventory) -> Manifest:
    key = Key.of(manifest)
    if key.kind == "Namespace" and key not in there and cluster.get(key) is not None:
        raise Clash(
            f"The namespace {key.name} is there and is not this platform's.",
            remedy="Choose another MILLRACE_K8S__NAMESPACE_PREFIX, or remove it.",
        )
    if owner is None or KINDS[key.kind].holds_data or KINDS[key.kind].is_wall:
        return manifest
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def _what(held: Object, before: Object | None, is_new: bool) -> str:
    if is_new:
        return "created"
    return "unchanged" if before is not None and _said(held) == _said(before) else "changed"


def _said(found: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object that people decide, not the server."""
    metadata = found.get("metadata", {})
    return {
        **{name: found.get(name) for name in _COMPARED},
        **{name: metadata.get(name) for name in _COMPARED_METADATA},
    }


def _refused(tenant: str, key: Key, refused: Refused) -> Outcome:
    return Outcome(tenant, key, "refused", refused.message, refused.remedy)


def _prune(cluster: KubernetesCluster, tenants: list[Rendered], there: Inventory, orders: Orders) -> Iterator[Outcome]:
    wanted = {Key.of(manifest) for tenant in tenants for manifest in tenant.manifests}
    in_scope = {tenant.names.workload for tenant in tenants}
    left_over = [key for key in there if key not in wanted and (orders.everyone or _tenant_of(there[key]) in in_scope)]
    made = list(KINDS)
    for key in sorted(left_over, key=lambda key: (-made.index(key.kind), key)):
        if not KINDS[key.kind].is_wall:
            yield _pruned(cluster, key, there[key], orders)


def _pruned(cluster: KubernetesCluster, key: Key, found: Object, orders: Orders) -> Outcome:
    tenant = str(found["metadata"].get("annotations", {}).get(TENANT_ANNOTATION, _tenant_of(found)))
    if KINDS[key.kind].holds_data and not orders.with_data:
        return Outcome(tenant, key, "kept", "it holds files; --volumes prunes it too")
    try:
        cluster.delete(key, found["metadata"]["uid"])
    except Refused as refused:
        return _refused(tenant, key, refused)
    return Outcome(tenant, key, "pruned")


def _tenant_of(found: Mapping[str, Any]) -> str:
    return str(found["metadata"].get("labels", {}).get(TENANT_LABEL, ""))
