"""Whatever an agreement says, what is rendered from it is valid, says only what was meant, and touches no other tenant."""

from itertools import islice

import pytest
import yaml

from millrace.k8s.render import render
from millrace.k8s.yaml_text import to_yaml
from millrace.model.agreement import Agreement
from millrace.model.errors import Invalid
from millrace.model.kube_names import MAX_DNS_NAME, dns_name
from millrace.settings import KubernetesSettings
from tests.support.kube_agreements import agreements
from tests.support.kube_rules import rule_problems
from tests.support.kube_schemas import schema_problems

SETTINGS = KubernetesSettings(app_image="registry.example/apps/{tenant}:1")
# `make bench-tenants` takes 10,000.
TENANTS = 2_000


@pytest.fixture(scope="module")
def fuzzed() -> list[Agreement]:
    return list(islice(agreements(), TENANTS))


def test_every_manifest_of_every_agreement_is_valid_and_reads_back_as_it_was(fuzzed: list[Agreement]) -> None:
    namespaces: dict[str, str] = {}
    refused = valid = 0
    for at, agreement in enumerate(fuzzed):
        try:
            manifests = render(agreement, SETTINGS)
        except Invalid:
            refused += 1
            continue
        for manifest in manifests:
            assert schema_problems(manifest) == []
            metadata = manifest["metadata"]
            assert (
                namespaces.setdefault(metadata.get("namespace", metadata["name"]), agreement.tenant) == agreement.tenant
            )
        assert rule_problems(manifests) == []
        if at % 10 == 0:
            assert list(yaml.load_all(to_yaml(manifests), yaml.CSafeLoader)) == manifests
        valid += len(manifests)
    assert valid > 4 * TENANTS
    assert refused < TENANTS / 2


def test_an_app_gets_its_own_tenant_and_what_its_agreement_says(fuzzed: list[Agreement]) -> None:
    for agreement in fuzzed[::7]:
        try:
            manifests = render(agreement, SETTINGS)
        except Invalid:
            continue
        for manifest in manifests:
            if manifest["kind"] not in ("CronJob", "Deployment"):
                continue
            spec = manifest["spec"]
            pod = spec["jobTemplate"]["spec"]["template"] if manifest["kind"] == "CronJob" else spec["template"]
            container = pod["spec"]["containers"][0]
            env = {one["name"]: _expanded(one["value"]) for one in container["env"] if "value" in one}
            assert env["CLIENT_ID"] == agreement.tenant
            assert env["SOURCE_PATH"] == "/data"
            said = {} if agreement.app is None else agreement.app.env
            assert {name: env[name] for name in said} == said
            command = [] if agreement.app is None else list(agreement.app.command)
            assert [_expanded(word) for word in container.get("command", [])] == command


def _expanded(words: str) -> str:
    """As Kubernetes does it, where nothing is left to expand."""
    assert "$(" not in words.replace("$$", "")
    return words.replace("$$", "$")


def test_names_that_differ_only_in_what_kubernetes_does_not_know_stay_apart() -> None:
    alike = [
        "acme",
        "Acme",
        "ACME",
        "ac-me",
        "ac_me",
        "acme-",
        "acme_",
        "acme--",
        "a" * 63,
        "a" * 62 + "A",
        "a" * 62 + "-",
    ]
    alike += [dns_name(name) for name in alike if dns_name(name) != name]
    names = [dns_name(name) for name in alike]
    assert len(set(names)) == len(names)
    assert all(len(name) <= MAX_DNS_NAME for name in names)
    assert dns_name("acme") == "acme"
