"""`k8s apply` against an API server that records every request."""

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.k8s.access import Access
from millrace.k8s.apply import Orders, Outcome, apply
from millrace.k8s.cluster import TRIES, KubernetesCluster
from millrace.k8s.errors import ClusterRefused, ClusterUnreachable
from millrace.k8s.render import render_all
from millrace.model.agreement import parse_agreement
from millrace.settings import KubernetesSettings
from tests.support.kube_api import TOKEN, KubeApi, kube_api

SETTINGS = KubernetesSettings()
SPACE = "/namespaces/millrace-tenant-acme"
CRON_JOB = f"/apis/batch/v1{SPACE}/cronjobs/acme"


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with kube_api() as server:
        yield server


def batch(client: str = "acme", schedule: str = "0 * * * *", **more: Any) -> dict[str, Any]:
    return {"client": client, "schedule": schedule, "app": {"image": "apps/wrangle:1"}, **more}


def stream(client: str = "acme") -> dict[str, Any]:
    return {"client": client, "app": {"image": "apps/wrangle:1", "mode": "stream", "autoscale": {"max": 3}}}


def run(api: KubeApi, *documents: dict[str, Any], **orders: Any) -> list[Outcome]:
    tenants = render_all([parse_agreement(document)[0] for document in documents], SETTINGS)
    dry_run = orders.get("dry_run", False)
    with KubernetesCluster(Access(api.url, token=TOKEN), dry_run=dry_run, pause=lambda _seconds: None) as cluster:
        return list(apply(cluster, tenants, SETTINGS.cell, Orders(**orders)))


def told(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.key.kind: outcome.what for outcome in outcomes}


def test_everything_is_created_by_server_side_apply_in_order_and_owned_by_the_anchor(api: KubeApi) -> None:
    outcomes = run(api, batch())
    assert [one.what for one in outcomes] == ["created"] * 7
    assert api.lines("PATCH", "POST", "PUT", "DELETE") == [
        "PATCH /api/v1/namespaces/millrace-tenant-acme",
        f"PATCH /api/v1{SPACE}/configmaps/agreement",
        f"PATCH /api/v1{SPACE}/serviceaccounts/app",
        f"PATCH /apis/networking.k8s.io/v1{SPACE}/networkpolicies/app",
        f"PATCH /api/v1{SPACE}/resourcequotas/agreement",
        f"PATCH /api/v1{SPACE}/persistentvolumeclaims/staging",
        f"PATCH {CRON_JOB}",
    ]
    patches = [request for request in api.requests if request.method == "PATCH"]
    assert {request.query["fieldManager"] for request in patches} == {"millrace"}
    assert {request.query["force"] for request in patches} == {"false"}
    anchor = api.find("ConfigMap")["metadata"]["uid"]
    owners = {one["kind"]: one["metadata"].get("ownerReferences") for one in api.objects.values()}
    assert [kind for kind, owner in sorted(owners.items()) if owner is None] == [
        "ConfigMap",
        "Namespace",
        "NetworkPolicy",
        "PersistentVolumeClaim",
    ]
    assert {owner[0]["uid"] for owner in owners.values() if owner} == {anchor}


def test_a_second_apply_changes_nothing_and_says_so(api: KubeApi) -> None:
    run(api, batch())
    versions = {path: one["metadata"]["resourceVersion"] for path, one in api.objects.items()}
    assert {one.what for one in run(api, batch())} == {"unchanged"}
    assert {path: one["metadata"]["resourceVersion"] for path, one in api.objects.items()} == versions


def test_a_change_touches_what_changed(api: KubeApi) -> None:
    run(api, batch(schedule="0 * * * *"))
    outcomes = told(run(api, batch(schedule="30 2 * * *")))
    assert [kind for kind, what in outcomes.items() if what == "changed"] == ["CronJob"]
    assert api.objects[CRON_JOB]["spec"]["schedule"] == "30 2 * * *"


def test_a_field_that_is_no_longer_said_goes(api: KubeApi) -> None:
    run(api, batch(schedule={"cron": "0 * * * *", "missed": "skip"}))  # type: ignore[arg-type]
    assert api.objects[CRON_JOB]["spec"]["startingDeadlineSeconds"] == 60
    run(api, batch(schedule={"cron": "0 * * * *", "missed": "run_once"}))  # type: ignore[arg-type]
    assert "startingDeadlineSeconds" not in api.objects[CRON_JOB]["spec"]


def test_a_batch_that_becomes_a_stream_leaves_no_cron_job_behind_once_pruned(api: KubeApi) -> None:
    run(api, batch())
    assert "CronJob" in told(run(api, stream(), prune=True))
    assert "CronJob" not in api.kinds()
    assert {"Deployment", "HorizontalPodAutoscaler", "PersistentVolumeClaim"} <= set(api.kinds())
    deleted = [request for request in api.requests if request.method == "DELETE"]
    assert [request.path for request in deleted] == [CRON_JOB]
    assert deleted[0].body["propagationPolicy"] == "Background"
    assert deleted[0].body["preconditions"]["uid"].startswith("uid-")


def test_pruning_with_files_leaves_tenants_alone_that_the_files_do_not_name(api: KubeApi) -> None:
    run(api, batch("acme"), batch("other"))
    assert run(api, batch("acme"), prune=True)
    assert api.lines("DELETE") == []


def test_a_tenant_that_is_gone_is_pruned_workload_first_but_its_files_and_its_wall_stay(api: KubeApi) -> None:
    run(api, batch("acme"), batch("gone"))
    outcomes = [one for one in run(api, batch("acme"), everyone=True, prune=True) if one.tenant == "gone"]
    assert [(one.key.kind, one.what) for one in outcomes] == [
        ("CronJob", "pruned"),
        ("PersistentVolumeClaim", "kept"),
        ("ResourceQuota", "pruned"),
        ("ServiceAccount", "pruned"),
        ("ConfigMap", "pruned"),
        ("Namespace", "kept"),
    ]
    left = sorted(one["kind"] for path, one in api.objects.items() if "tenant-gone" in path)
    assert left == ["Namespace", "NetworkPolicy", "PersistentVolumeClaim"]


def test_volumes_and_namespaces_go_when_that_is_asked_for(api: KubeApi) -> None:
    run(api, batch("acme"), batch("gone"))
    run(api, batch("acme"), everyone=True, prune=True, with_data=True)
    assert not [path for path in api.objects if "tenant-gone" in path]
    assert api.lines("DELETE")[-1] == "DELETE /api/v1/namespaces/millrace-tenant-gone"


def test_the_objects_of_another_cell_are_not_seen(api: KubeApi) -> None:
    run(api, batch("acme"))
    for one in api.objects.values():
        one["metadata"]["labels"]["millrace/cell"] = "another"
    with KubernetesCluster(Access(api.url, token=TOKEN)) as cluster:
        assert list(apply(cluster, [], SETTINGS.cell, Orders(everyone=True, prune=True, with_data=True))) == []


def test_a_conflict_names_the_field_and_who_owns_it_and_the_rest_goes_on(api: KubeApi) -> None:
    run(api, batch())
    api.objects[CRON_JOB]["spec"]["schedule"] = "5 5 * * *"
    api.owners[CRON_JOB] = {".spec.schedule": "kubectl-edit"}
    outcomes = run(api, batch(), stream("other"))
    refused = [one for one in outcomes if one.what == "refused"]
    assert [one.key.kind for one in refused] == ["CronJob"]
    assert refused[0].reason == "Another manager owns what would change: .spec.schedule is kubectl-edit's."
    assert "--force-conflicts" in refused[0].remedy
    assert api.objects[CRON_JOB]["spec"]["schedule"] == "5 5 * * *"
    assert told(outcomes)["Deployment"] == "created"


def test_a_conflict_can_be_forced(api: KubeApi) -> None:
    run(api, batch())
    api.objects[CRON_JOB]["spec"]["schedule"] = "5 5 * * *"
    api.owners[CRON_JOB] = {".spec.schedule": "kubectl-edit"}
    assert told(run(api, batch(), force=True))["CronJob"] == "changed"
    assert api.objects[CRON_JOB]["spec"]["schedule"] == "0 * * * *"


def test_what_is_forbidden_is_told_and_what_stands_on_it_is_left_out(api: KubeApi) -> None:
    api.refusals["PATCH", "tenant-acme/configmaps"] = 403
    outcomes = run(api, batch("acme"), batch("other"))
    mine = {one.key.kind: one for one in outcomes if one.tenant == "acme"}
    assert mine["ConfigMap"].what == "refused"
    assert "is forbidden" in mine["ConfigMap"].reason
    assert "may do this" in mine["ConfigMap"].remedy
    assert mine["CronJob"].what == "skipped"
    assert {one.what for one in outcomes if one.tenant == "other"} == {"created"}


def test_nothing_is_done_when_the_cluster_may_not_even_be_looked_at(api: KubeApi) -> None:
    api.refusals["GET", "/cronjobs"] = 403
    with pytest.raises(ClusterRefused, match="is forbidden"):
        run(api, batch())
    assert api.lines("PATCH") == []


def test_a_namespace_of_somebody_else_is_not_taken_over(api: KubeApi) -> None:
    api.objects["/api/v1/namespaces/millrace-tenant-acme"] = {
        "kind": "Namespace",
        "metadata": {"name": "millrace-tenant-acme", "uid": "1"},
    }
    outcomes = run(api, batch())
    assert outcomes[0].what == "refused"
    assert "not this platform's" in outcomes[0].reason
    assert {one.what for one in outcomes[1:]} == {"skipped"}
    assert api.lines("PATCH") == []


def test_a_dry_run_asks_the_cluster_and_changes_nothing(api: KubeApi) -> None:
    run(api, batch("acme"))
    before = {path: dict(one) for path, one in api.objects.items()}
    api.requests.clear()
    outcomes = run(api, batch("acme", schedule="1 1 * * *"), batch("fresh"), dry_run=True, everyone=True, prune=True)
    assert api.objects == before
    assert {request.query["dryRun"] for request in api.requests if request.method != "GET"} == {"All"}
    assert {one.key.kind: one.what for one in outcomes if one.tenant == "acme"}["CronJob"] == "changed"
    assert {one.what for one in outcomes if one.tenant == "fresh"} == {"created"}
    # A namespace that is not there yet can hold nothing, so the cluster is not asked about what will be in it.
    assert not [request for request in api.requests if "tenant-fresh/" in request.path]


def test_a_busy_cluster_is_asked_again_after_the_pause_it_wants(api: KubeApi) -> None:
    api.first_answers = [(429, {"Retry-After": "7"}), (503, {})]
    pauses: list[float] = []
    with KubernetesCluster(Access(api.url, token=TOKEN), pause=pauses.append) as cluster:
        assert list(apply(cluster, [], SETTINGS.cell, Orders())) == []
    assert pauses == [7.0, 0.4]


def test_a_cluster_that_stays_busy_is_unreachable(api: KubeApi) -> None:
    api.first_answers = [(503, {})] * TRIES
    with pytest.raises(ClusterUnreachable, match="503"):
        run(api, batch())


def test_a_cluster_that_is_not_there_is_unreachable() -> None:
    with kube_api() as api:
        pass
    with pytest.raises(ClusterUnreachable, match="does not answer"):
        run(api, batch())


def test_a_wrong_token_is_refused_with_what_to_do(api: KubeApi) -> None:
    with (
        KubernetesCluster(Access(api.url, token="expired")) as cluster,
        pytest.raises(ClusterRefused, match="Log in to the cluster again"),
    ):
        list(apply(cluster, [], SETTINGS.cell, Orders()))


def test_lists_are_read_to_their_last_page(api: KubeApi) -> None:
    run(api, *(batch(f"tenant{number}") for number in range(8)))
    api.requests.clear()
    assert {one.what for one in run(api, *(batch(f"tenant{number}") for number in range(8)))} == {"unchanged"}
    pages = [request.query.get("continue") for request in api.requests if request.line == "GET /apis/batch/v1/cronjobs"]
    assert pages == [None, "3", "6"]
