"""What an agreement becomes on Kubernetes: by golden files as a whole, and rule by rule.

`MILLRACE_GOLDEN=write pytest tests/unit/test_k8s_render.py` writes the golden files anew; read the difference."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.k8s.render import render, render_all, stopped
from millrace.k8s.yaml_text import to_yaml
from millrace.model.agreement import parse_agreement
from millrace.model.errors import Clash, Invalid
from millrace.settings import KubernetesSettings
from millrace.staging.users import user_of
from tests.support.kube_rules import rule_problems
from tests.support.kube_schemas import NEWEST, OLDEST, schema_problems

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "k8s"
SETTINGS = KubernetesSettings()
SEED = json.loads((ROOT / "examples" / "client_a" / "service_agreement.json").read_text())
STREAM = {
    "client": "Acme_Logs",
    "app": {
        "image": "registry.example/acme/logs@sha256:" + "0" * 64,
        "mode": "stream",
        "command": ["/bin/watch", "--rate", "$(RATE)"],
        "env": {"RATE": "1e3", "VERBOSE": "yes"},
        "autoscale": {"min": 2, "max": 5, "target_cpu_percent": 70},
    },
    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    "quotas": {"storage_bytes": "50Gi"},
}
NIGHTLY = {
    "client": "nightly",
    "schedule": {"cron": "30 2 * * mon-fri", "time_zone": "Europe/Helsinki", "missed": "skip"},
    "app": {"image": "apps/wrangle:2", "replicas": 3},
}
STRICT = KubernetesSettings.model_validate(
    {
        "storage_class": "shared",
        "image_pull_secrets": ["registry"],
        "runtime_class": "gvisor",
        "egress": ["10.1.0.0/16"],
        "source_path": "/mnt/data",
        "cell": "north",
    }
)
CASES = {
    "seed-002": (SEED, KubernetesSettings(app_image="registry.example/apps/{tenant}:latest")),
    "stream": (STREAM, SETTINGS),
    "nightly": (NIGHTLY, STRICT),
}


def manifests(document: dict[str, Any], settings: KubernetesSettings = SETTINGS) -> dict[str, Any]:
    found = render(parse_agreement(document)[0], settings)
    assert rule_problems(found) == []
    assert [wrong for one in found for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)] == []
    return {one["kind"]: one for one in found}


def batch(**more: Any) -> dict[str, Any]:
    return {"client": "acme", "schedule": "0 * * * *", "app": {"image": "apps/a:1"}, **more}


def pod(found: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = found["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", CASES)
def test_the_whole_is_as_in_the_golden_file(name: str) -> None:
    document, settings = CASES[name]
    text = to_yaml(manifests(document, settings).values())
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("MILLRACE_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


def test_the_app_gets_the_contracts_variables_and_its_own_folder_alone() -> None:
    spec = pod(manifests(batch()))
    (container,) = spec["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert (env["CLIENT_ID"], env["SOURCE_PATH"]) == ("acme", "/data")
    mounts = [(one["mountPath"], one.get("subPath")) for one in container["volumeMounts"]]
    assert mounts == [("/data/acme/in", "in"), ("/data/acme/out", "out"), ("/tmp", None)]
    assert [set(one) - {"name"} for one in spec["volumes"]] == [{"persistentVolumeClaim"}, {"emptyDir"}]


def test_each_tenants_app_has_a_user_of_its_own_in_the_platforms_group() -> None:
    contexts = {name: pod(manifests(batch(client=name)))["securityContext"] for name in ("acme", "other")}
    users = {name: (one["runAsUser"], one["runAsGroup"], one["fsGroup"]) for name, one in contexts.items()}
    assert users == {name: (user_of(name), user_of(name), 10_001) for name in ("acme", "other")}
    fixed = pod(manifests(batch(), KubernetesSettings(user_id=2000)))["securityContext"]
    assert (fixed["runAsUser"], fixed["fsGroup"]) == (2000, 10_001)
    with pytest.raises(ValueError, match="platform's user"):
        KubernetesSettings(user_id=10_001)


@pytest.mark.parametrize(("missed", "deadline"), [("skip", 60), ("run_once", None), ("run_all", None)])
def test_missed_runs(missed: str, deadline: int | None) -> None:
    spec = manifests(batch(schedule={"cron": "0 * * * *", "missed": missed}))["CronJob"]["spec"]
    assert (spec.get("startingDeadlineSeconds"), spec["concurrencyPolicy"]) == (deadline, "Forbid")


def test_several_at_once_know_which_one_they_are() -> None:
    found = manifests(batch(app={"image": "a:1", "replicas": 3}))
    job = found["CronJob"]["spec"]["jobTemplate"]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (3, 3, "Indexed")
    assert found["ResourceQuota"]["spec"]["hard"]["pods"] == "3"


def test_none_at_all_is_a_schedule_that_rests() -> None:
    assert manifests(batch(app={"image": "a:1", "replicas": 0}))["CronJob"]["spec"]["suspend"] is True


def test_a_tenant_that_is_leaving_rests_too() -> None:
    for document in (SEED, STREAM, NIGHTLY):
        resting = render(stopped(parse_agreement(document)[0]), KubernetesSettings(app_image="a:1"))
        found = {one["kind"]: one["spec"] for one in resting if one["kind"] in ("CronJob", "Deployment")}
        assert [spec.get("suspend") or spec.get("replicas") == 0 for spec in found.values()] == [True]


def test_the_quota_is_what_all_pods_together_may_use() -> None:
    hard = manifests(STREAM)["ResourceQuota"]["spec"]["hard"]
    assert (hard["pods"], hard["limits.cpu"], hard["limits.memory"], hard["requests.cpu"]) == ("5", "5", "5Gi", "1250m")
    assert hard["requests.storage"] == "50Gi"


def test_what_the_agreement_leaves_open_is_bounded_by_the_settings() -> None:
    asked = {"requests": {"memory": "2Gi"}}
    (container,) = pod(manifests(batch(resources=asked)))["containers"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "256Mi"}
    assert container["resources"]["requests"]["cpu"] == "100m"


@pytest.mark.parametrize(
    "wrong",
    [
        {"resources": {"limits": {"cpu": "0"}}},
        {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
        {"app": {"image": "a b"}},
        {"app": {"image": "--privileged"}},
        {"app": {"image": "a:1", "env": {"A": "\ud800"}}},
    ],
)
def test_what_kubernetes_would_refuse_or_misread_is_refused_before(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        manifests(batch(**wrong))
    assert refused.value.remedy


def test_nothing_goes_out_unless_a_network_is_allowed_and_nothing_ever_comes_in() -> None:
    closed, opened = (manifests(batch(), one)["NetworkPolicy"]["spec"] for one in (SETTINGS, STRICT))
    assert (closed["ingress"], closed["egress"], closed["podSelector"]) == ([], [], {})
    assert opened["ingress"] == []
    assert opened["egress"][0] == {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}
    assert {port["port"] for port in opened["egress"][1]["ports"]} == {53}


def test_the_addresses_where_clouds_keep_credentials_are_never_reached() -> None:
    everywhere = KubernetesSettings.model_validate({"egress": ["0.0.0.0/0", "::/0", "10.0.0.0/8"]})
    blocks = manifests(batch(), everywhere)["NetworkPolicy"]["spec"]["egress"][0]["to"]
    assert [block["ipBlock"].get("except") for block in blocks] == [["169.254.0.0/16"], ["fd00:ec2::/32"], None]


@pytest.mark.parametrize(
    ("document", "note"),
    [
        ({"client": "a"}, "names no image"),
        ({"client": "a", "app": {"command": ["x"]}}, "local command"),
        ({"client": "a", "app": {"image": "a:1"}}, "without a schedule"),
        (batch(schedule={"cron": "0 * * * *", "missed": "run_all"}), "run_all"),
        (batch(app={"image": "a:1", "autoscale": {"max": 2}}), "for streams"),
        (batch(), None),
        (STREAM, None),
    ],
)
def test_what_kubernetes_will_not_do_as_agreed_is_said(document: dict[str, Any], note: str | None) -> None:
    (rendered,) = render_all([parse_agreement(document)[0]], SETTINGS)
    assert [note in one for one in rendered.notes] == ([] if note is None else [True])
    assert bool(rendered.manifests) == ("image" in document.get("app", {}))


def test_a_tenant_with_two_agreements_is_refused() -> None:
    agreement, _ = parse_agreement(batch())
    with pytest.raises(Clash, match="'acme' and 'acme' both want millrace-tenant-acme"):
        render_all([agreement, agreement], SETTINGS)


def test_text_that_yaml_could_take_for_something_else_is_quoted() -> None:
    words = [
        "1e3",
        "0o17",
        "1_000",
        "yes",
        "NO",
        "on",
        "null",
        "~",
        "2026-11-15",
        "12:30",
        "",
        "- a",
        "a: b",
        "\x85",
        "\u2028",
    ]
    text = to_yaml([{"words": words, "plain": ["apps/v1", "Europe/Helsinki"]}])
    assert list(yaml.safe_load_all(text)) == [{"words": words, "plain": ["apps/v1", "Europe/Helsinki"]}]
    assert all(line[2:].startswith('"') for line in text.splitlines() if line.startswith("- ") and "/" not in line)
    assert "- apps/v1\n" in text


TWO = {
    "client": "acme",
    "schedule": "0 * * * *",
    "apps": [
        {"name": "clean", "image": "apps/clean:1", "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "Tail_Logs", "image": "apps/tail:1", "mode": "stream", "replicas": 2},
        {"name": "here", "command": ["./local"]},
    ],
}


def test_several_apps_have_a_workload_each_and_share_the_rest() -> None:
    found = render(parse_agreement(TWO)[0], SETTINGS)
    assert rule_problems(found) == []
    assert [wrong for one in found for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)] == []
    named = {(one["kind"], one["metadata"]["name"]) for one in found if one["kind"] in ("CronJob", "Deployment")}
    [tail] = [one for one in found if one["kind"] == "Deployment"]
    assert named == {("CronJob", "app-clean"), ("Deployment", tail["metadata"]["name"])}
    assert tail["metadata"]["name"].startswith("app-tail-logs-")
    quota = next(one for one in found if one["kind"] == "ResourceQuota")["spec"]["hard"]
    assert (quota["pods"], quota["limits.memory"]) == ("3", "2Gi"), "1Gi and twice the usual 512Mi"
    mounts = {one["mountPath"]: one.get("subPath") for one in pod_of(found, "CronJob")["containers"][0]["volumeMounts"]}
    assert mounts["/data/acme/in"] == "apps/clean/acme/in"
    selectors = [one["metadata"]["labels"]["millrace/app"] for one in found if one["kind"] in ("CronJob", "Deployment")]
    assert len(set(selectors)) == 2
    [rendered] = render_all([parse_agreement(TWO)[0]], SETTINGS)
    assert any(note.startswith("app here: nothing is rendered") for note in rendered.notes)
    resting = render(stopped(parse_agreement(TWO)[0]), SETTINGS)
    assert next(one for one in resting if one["kind"] == "Deployment")["spec"]["replicas"] == 0


def pod_of(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return pod({kind: next(one for one in found if one["kind"] == kind)})


def test_each_replica_of_a_batch_has_an_in_of_its_own() -> None:
    container = pod(manifests(batch(app={"image": "a:1", "replicas": 3})))["containers"][0]
    mounts = {one["mountPath"]: one.get("subPathExpr") for one in container["volumeMounts"]}
    assert mounts["/data/acme/in"] == "replicas/$(JOB_COMPLETION_INDEX)"
    assert container["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    stream = {"client": "acme", "app": {"image": "a:1", "mode": "stream", "replicas": 3}}
    streaming = manifests(stream)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert {one.get("subPath") for one in streaming["volumeMounts"]} == {"in", "out", None}
