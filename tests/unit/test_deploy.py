"""The platform's own manifests and image: the overlays build, what they say is valid, and what they name is there."""

import shutil
import subprocess
import sys
import urllib.request
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from millrace.k8s.render import render
from millrace.k8s.resources import KINDS
from millrace.k8s.yaml_text import to_yaml
from millrace.model.agreement import parse_agreement
from millrace.settings import KubernetesSettings, Settings
from tests.support.kube_rules import rule_problems
from tests.support.kube_schemas import NEWEST, OLDEST, schema_problems
from tests.support.kustomize import build
from tests.support.small_server import small_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("external-kafka", "single-broker")
# What an operator makes by hand; docs/kubernetes.md says how.
SECRETS = {"millrace-client", "millrace-secrets", "millrace-apply", "millrace-kafka", "millrace-tls"}
Manifest = dict[str, Any]


@cache
def overlay(name: str) -> tuple[Manifest, ...]:
    return tuple(build(DEPLOY / "overlays" / name))


def pods(name: str) -> list[Manifest]:
    found = []
    for one in overlay(name):
        if one["kind"] == "CronJob":
            found.append(one["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        elif one["kind"] == "StatefulSet":
            found.append(one["spec"]["template"]["spec"])
    return found


def containers(name: str) -> list[Manifest]:
    return [container for pod in pods(name) for container in pod["containers"]]


def named(value: Any, key: str) -> list[Any]:
    """Every value that stands under the key, at any depth."""
    if isinstance(value, list):
        return [found for part in value for found in named(part, key)]
    if not isinstance(value, dict):
        return []
    return ([value[key]] if key in value else []) + [found for part in value.values() for found in named(part, key)]


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_manifest_is_valid_and_restricted(name: str) -> None:
    manifests = overlay(name)
    assert [wrong for one in manifests for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)] == []
    allowed = ["CronJob: it gets a token of the cluster"] if name == "external-kafka" else []
    assert rule_problems(manifests) == allowed


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_is_named_is_there(name: str) -> None:
    configs = {one["metadata"]["name"] for one in overlay(name) if one["kind"] == "ConfigMap"}
    assert {one["name"] for one in named(pods(name), "configMapRef")} <= configs
    secrets = {one["name"] for key in ("secretRef", "secretKeyRef") for one in named(pods(name), key)}
    assert secrets | set(named(pods(name), "secretName")) <= SECRETS
    assert "Secret" not in {one["kind"] for one in overlay(name)}
    assert len({container["image"] for container in containers(name)}) == 1


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_command_is_one_of_ours(name: str) -> None:
    probed = [probe["command"] for probe in named(containers(name), "exec")]
    commands = [*(container["args"] for container in containers(name)), *probed]
    modules = {command[2] for command in commands if command[:2] == ["python", "-m"]}
    assert {"millrace.api", "millrace.plane", "millrace.manage"} <= modules
    assert [module for module in modules if find_spec(module) is None] == []
    for words in (command[1:] for command in commands if command[0] == "millrace"):
        ran = subprocess.run([sys.executable, "-m", "millrace.cli.main", *words, "--help"], check=False, timeout=60)
        assert ran.returncode == 0


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_setting_is_one_that_the_platform_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = (one["data"] for one in overlay(name) if one["kind"] == "ConfigMap")
    for key, value in config.items():
        if key.startswith("MILLRACE_"):
            monkeypatch.setenv(key, value)
            section: type[BaseModel] = Settings
            *path, last = key.removeprefix("MILLRACE_").lower().split("__")
            for part in path:
                section = section.model_fields[part].annotation  # type: ignore[assignment]
            assert last in section.model_fields, key
    settings = Settings()
    pod = pods(name)[0] if len(pods(name)) == 1 else next(pod for pod in pods(name) if len(pod["containers"]) > 1)
    data_plane = next(one for one in pod["containers"] if one["name"] == "data-plane")
    cores = int(data_plane["resources"]["limits"]["cpu"])
    assert settings.spark.master == f"local[{2 * cores + 2},4]"
    assert settings.spark.options["spark.sql.shuffle.partitions"].get_secret_value() == str(cores)


def test_each_container_gets_its_own_password_and_no_other() -> None:
    (pod,) = pods("single-broker")
    secrets = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
    given = {
        container["name"]: [
            [item["path"] for item in secrets[mount["name"]].get("items", [{"path": "all"}])]
            for mount in container["volumeMounts"]
            if mount["mountPath"] == "/etc/millrace/kafka"
        ]
        for container in pod["containers"]
    }
    assert given == {"server": [["server"]], "data-plane": [["data-plane"]], "manager": [], "kafka": [["all"]]}


def test_what_probes_ask_for_is_answered_to_anybody(tmp_path: Path) -> None:
    paths = {probe["path"] for probe in named(containers("single-broker"), "httpGet")}
    assert paths
    with small_server(tmp_path) as server:
        for path in paths:
            with urllib.request.urlopen(server.url + path) as answer:
                assert answer.status == 200


def test_apps_share_the_platforms_group_and_not_its_user() -> None:
    assert KubernetesSettings().user_id is None
    users = {KubernetesSettings().group_id, *named(pods("external-kafka"), "runAsUser")}
    users |= set(named(pods("external-kafka"), "runAsGroup")) | set(named(pods("external-kafka"), "fsGroup"))
    assert users == {10001}
    assert "USER 10001:10001" in (DEPLOY / "Dockerfile").read_text().splitlines()


def test_the_rights_of_apply_are_those_that_it_needs() -> None:
    (role,) = (one for one in overlay("external-kafka") if one["kind"] == "ClusterRole")
    given = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    needed = {(kind.api.rpartition("/")[0], kind.plural) for kind in KINDS.values()}
    assert set(given) == needed
    assert set(map(frozenset, given.values())) == {frozenset({"get", "list", "create", "patch", "delete"})}


def test_the_image_is_well_made_and_what_it_copies_is_there() -> None:
    dockerfile = DEPLOY / "Dockerfile"
    linted = subprocess.run(
        [str(Path(sys.executable).parent / "hadolint"), "--failure-threshold", "style", str(dockerfile)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert linted.returncode == 0, linted.stdout
    text = dockerfile.read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for source in (name for names in copied for name in names):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_other_readers_of_yaml_see_what_was_rendered(tmp_path: Path) -> None:
    """Kustomize reads as kubectl does: text that it takes for a number is a manifest that a cluster refuses."""
    words = [
        "1e3",
        "0o17",
        "0x1F",
        "1_000",
        "yes",
        "~",
        "null",
        "12:30",
        "2026-11-15",
        "a: b",
        "# x",
        "\u2028é😀",
        "$(X)",
    ]
    app = {"image": "a:1", "command": words, "env": {f"V{at}": word for at, word in enumerate(words)}}
    found = render(parse_agreement({"client": "a", "schedule": "@hourly", "app": app})[0], KubernetesSettings())
    (tmp_path / "all.yaml").write_text(to_yaml(found))
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    assert sorted(build(tmp_path), key=lambda one: str(one["kind"])) == sorted(found, key=lambda one: str(one["kind"]))


def test_the_pod_reads_secrets_of_kubernetes_only_with_the_component(tmp_path: Path) -> None:
    """And then only where a namespace grants it: the role is bound nowhere."""
    copied = shutil.copytree(DEPLOY, tmp_path / "deploy")
    kustomization = copied / "overlays" / "single-broker" / "kustomization.yaml"
    kustomization.write_text(f"{kustomization.read_text()}\ncomponents: [../../components/secrets]\n")
    manifests = build(kustomization.parent)
    assert [wrong for one in manifests for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)] == []
    (pod,) = (one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "StatefulSet")
    assert pod["automountServiceAccountToken"] is True
    (role,) = (one for one in manifests if one["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    assert not [one for one in manifests if one["kind"].endswith("RoleBinding")]
    assert [pod["automountServiceAccountToken"] for pod in pods("single-broker")] == [False]


@pytest.mark.parametrize("name", OVERLAYS)
def test_whoever_asks_the_api_uses_tls_if_the_api_does(tmp_path: Path, name: str) -> None:
    copied = shutil.copytree(DEPLOY, tmp_path / "deploy")
    kustomization = copied / "overlays" / name / "kustomization.yaml"
    written = kustomization.read_text()
    with_apply = written.replace(
        "  - ../../components/apply\n", "  - ../../components/apply\n  - ../../components/tls\n"
    )
    kustomization.write_text(
        with_apply if with_apply != written else f"{written}\ncomponents: [../../components/tls]\n"
    )
    manifests = build(kustomization.parent)
    assert [wrong for one in manifests for version in (OLDEST, NEWEST) for wrong in schema_problems(one, version)] == []
    (pod,) = (
        one["spec"]["template"]["spec"]
        for one in manifests
        if one["metadata"]["name"] == "millrace" and one["kind"] == "StatefulSet"
    )
    asked = named(pod, "httpGet")
    assert [(probe["path"], probe["scheme"]) for probe in asked] == [("/metrics", "HTTPS")] * 3
    server, manager = (next(one for one in pod["containers"] if one["name"] == part) for part in ("server", "manager"))
    mounted = {mount["mountPath"] for mount in server["volumeMounts"]}
    for variable in ("MILLRACE_API__TLS_CERT", "MILLRACE_API__TLS_KEY"):
        (path,) = (one["value"] for one in server["env"] if one["name"] == variable)
        assert str(Path(path).parent) in mounted
    assert "tls.key" not in str(
        [one for one in pod["volumes"] if one["name"] in {m["name"] for m in manager["volumeMounts"]}]
    )
    jobs = [one["spec"]["jobTemplate"]["spec"]["template"]["spec"] for one in manifests if one["kind"] == "CronJob"]
    assert bool(jobs) == (name == "external-kafka")
    for job in jobs:
        env = {one["name"]: one.get("value") for one in job["containers"][0]["env"]}
        assert env["MILLRACE_URL"] == "https://millrace:8420"
        assert env["MILLRACE_CA_FILE"] in {f"{one['mountPath']}/ca.crt" for one in job["containers"][0]["volumeMounts"]}


class Value:
    """A JSON value as CEL's expressions address it: members by a dot, keys of maps in brackets."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        found = self._value[name]
        return Value(found) if isinstance(found, dict) else found

    def __contains__(self, name: str) -> bool:
        return name in self._value


def holds(expression: str, **given: Any) -> bool:
    """CEL as far as the policy uses it, by Python's own rules: the two agree on these operators."""
    python = (
        expression.replace("&&", " and ")
        .replace("||", " or ")
        .replace("null", "None")
        .replace("startsWith", "startswith")
    )
    names = {name: Value(value) if isinstance(value, dict) else value for name, value in given.items()}
    return bool(eval(" ".join(python.split()), {"__builtins__": {}}, names))


def is_let(resource: str, name: str, *, inside: Any = None, before: Any = None, after: Any = None, who: str) -> bool:
    """Whether the policy lets an account do this: `inside` is the namespace, `before` and `after` the object."""
    (policy,) = (one for one in overlay("external-kafka") if one["kind"] == "ValidatingAdmissionPolicy")
    request = {"resource": {"resource": resource}, "name": name, "userInfo": {"username": who}}
    given = {"request": request, "namespaceObject": inside, "oldObject": before, "object": after}
    spec = policy["spec"]
    if not all(holds(one["expression"], **given) for one in spec["matchConditions"]):
        return True
    return all(holds(one["expression"], **given) for one in spec["validations"])


def test_apply_changes_only_namespaces_of_its_cell_s_tenants() -> None:
    (binding,) = (one for one in overlay("external-kafka") if one["kind"] == "ValidatingAdmissionPolicyBinding")
    assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == ("millrace-apply", ["Deny"])
    (bound,) = (one for one in overlay("external-kafka") if one["kind"] == "ClusterRoleBinding")
    subject = bound["subjects"][0]
    who = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    manifests = render(parse_agreement({"client": "acme", "app": {"image": "r.example/a:1"}})[0], KubernetesSettings())
    tenants = manifests[0]
    assert tenants["kind"] == "Namespace"
    system = {"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}}
    others = {"metadata": {"labels": {**tenants["metadata"]["labels"], "millrace/cell": "other"}}}
    open_to_all = {"metadata": {"labels": {"millrace/cell": "millrace"}}}
    name = tenants["metadata"]["name"]
    assert is_let("deployments", "a", inside=tenants, after={}, who=who)
    assert is_let("namespaces", name, after=tenants, who=who)
    assert is_let("namespaces", name, before=tenants, after=tenants, who=who)
    assert is_let("namespaces", name, before=tenants, who=who), "it may delete it"
    for inside in (system, others, None):
        assert not is_let("deployments", "a", inside=inside, after={}, who=who)
    assert not is_let("namespaces", "kube-system", before=system, after=tenants, who=who)
    assert not is_let("namespaces", name, before=others, after=tenants, who=who), "another cell's stays another's"
    assert not is_let("namespaces", name, before=system, who=who)
    assert not is_let("namespaces", name, after=open_to_all, who=who), "pods there would not be restricted"
    assert not is_let("namespaces", "elsewhere", after=tenants, who=who)
    assert is_let("deployments", "a", inside=system, after={}, who="system:admin"), "nobody else is concerned"
