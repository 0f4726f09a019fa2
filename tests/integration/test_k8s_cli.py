"""`millrace k8s render|apply` as people run it: a kubeconfig, an API server over TLS, exit codes, JSON."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from millrace.k8s.access import Access
from millrace.k8s.cluster import KubernetesCluster
from millrace.k8s.errors import ClusterUnreachable
from millrace.k8s.resources import KINDS
from tests.support.fake_platform import TOKEN as PLATFORM_TOKEN
from tests.support.fake_platform import FakePlatform, fake_platform
from tests.support.kube_api import TOKEN, KubeApi, kube_api
from tests.support.tls import Authority, make_authority

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGE = {"MILLRACE_K8S__APP_IMAGE": "registry.example/apps/{tenant}:1"}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def api(authority: Authority) -> Iterator[KubeApi]:
    with kube_api(authority.server()) as server:
        yield server


@pytest.fixture
def platform() -> Iterator[FakePlatform]:
    with fake_platform() as fake:
        fake.answers["GET", "/v1/tenants"] = {"items": [{"name": "acme"}, {"name": "still"}]}
        app = {"image": "apps/acme:1", "mode": "stream"}
        fake.answers["GET", "/v1/tenants/acme"] = {"tenant": "acme", "agreement": {"client": "acme", "app": app}}
        fake.answers["GET", "/v1/tenants/still"] = {"tenant": "still", "agreement": {"client": "still"}}
        yield fake


@pytest.fixture
def millrace(tmp_path: Path, platform: FakePlatform, api: KubeApi, authority: Authority) -> Run:
    (tmp_path / "client.json").write_text(json.dumps({"url": platform.url, "token": PLATFORM_TOKEN}))
    (tmp_path / "ca.crt").write_text(authority.certificate)
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": api.url, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "test", "user": {"token": TOKEN}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    environ = {"MILLRACE_HOME": str(tmp_path), "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")}

    def run(*args: str, **more: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "millrace.cli.main", "k8s", *args]
        return subprocess.run(command, env={**environ, **more}, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_rendering_files_needs_neither_platform_nor_cluster(millrace: Run, api: KubeApi, tmp_path: Path) -> None:
    done = millrace("render", "-f", str(EXAMPLES), KUBECONFIG="", MILLRACE_URL="http://localhost:1", **IMAGE)
    assert done.returncode == 0, done.stderr
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert kinds.count("CronJob") == 2
    assert "client_b: resources.limits.cpu" in done.stderr
    written = millrace("render", "-f", str(EXAMPLES), "-o", str(tmp_path / "out"), **IMAGE)
    assert written.returncode == 0, written.stderr
    listed = yaml.safe_load((tmp_path / "out" / "kustomization.yaml").read_text())["resources"]
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == sorted([*listed, "kustomization.yaml"])
    assert "".join((tmp_path / "out" / name).read_text() for name in listed) == done.stdout
    assert api.requests == []


def test_what_can_hardly_be_meant_is_refused_when_asked(millrace: Run) -> None:
    done = millrace("render", "-f", str(EXAMPLES), "--strict", **IMAGE)
    assert done.returncode == 1
    assert "resources.limits.cpu" in done.stderr
    assert done.stdout == ""


def test_apply_takes_the_platforms_agreements_to_the_cluster_and_again_finds_nothing_to_do(
    millrace: Run, api: KubeApi
) -> None:
    first, second = millrace("apply", "--prune"), millrace("apply", "--prune", "--json")
    assert first.returncode == 0, first.stderr
    assert "Deployment millrace-tenant-acme/acme created" in first.stdout
    assert "still: nothing is rendered" in first.stderr
    outcomes = [json.loads(line) for line in second.stdout.splitlines()]
    assert {one["outcome"] for one in outcomes} == {"unchanged"}
    assert {request.headers["authorization"] for request in api.requests} == {f"Bearer {TOKEN}"}


def test_a_tenant_that_is_leaving_runs_no_more_but_keeps_its_files(
    millrace: Run, api: KubeApi, platform: FakePlatform
) -> None:
    millrace("apply")
    platform.answers["GET", "/v1/tenants"] = {"items": [{"name": "acme", "deleted_at": "2026-11-15T00:00:00Z"}]}
    done = millrace("apply", "--prune", "--volumes")
    assert done.returncode == 0, done.stderr
    assert api.find("Deployment")["spec"]["replicas"] == 0
    assert api.find("PersistentVolumeClaim")
    assert api.lines("DELETE") == []


def test_a_platform_without_tenants_prunes_nothing(millrace: Run, api: KubeApi, platform: FakePlatform) -> None:
    millrace("apply")
    platform.answers["GET", "/v1/tenants"] = {"items": []}
    done = millrace("apply", "--prune")
    assert done.returncode == 1
    assert "no tenants" in done.stderr
    assert api.lines("DELETE") == []


def test_what_the_cluster_refuses_is_exit_1_with_the_remedy(millrace: Run, api: KubeApi) -> None:
    api.refusals["PATCH", "/deployments/"] = 403
    done = millrace("apply")
    assert done.returncode == 1
    assert "Deployment millrace-tenant-acme/acme refused" in done.stdout
    assert "Use an account that may do this" in done.stdout


def test_a_cluster_that_does_not_answer_is_exit_3(millrace: Run, tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "https://localhost:1"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    done = millrace("apply")
    assert (done.returncode, done.stdout) == (3, "")
    assert "does not answer" in done.stderr


@pytest.mark.parametrize("words", [("apply", "--volumes"), ("apply", "--all", "-f", "x"), ("render", "-o")])
def test_what_cannot_be_meant_is_exit_2(millrace: Run, words: tuple[str, ...]) -> None:
    assert millrace(*words).returncode == 2


def test_a_server_whose_certificate_is_not_trusted_is_not_spoken_to(api: KubeApi, tmp_path: Path) -> None:
    other = make_authority(tmp_path)
    with (
        KubernetesCluster(Access(api.url, other.certificate, token=TOKEN)) as cluster,
        pytest.raises(ClusterUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        list(cluster.list(KINDS["CronJob"], "a=b"))
    assert api.requests == []


def test_a_certificate_of_our_own_is_shown(authority: Authority) -> None:
    certificate, key = (file.read_text() for file in authority.issue("operator"))
    with kube_api(authority.server(asks_clients=True)) as api:
        with (
            KubernetesCluster(Access(api.url, authority.certificate, token=TOKEN)) as nobody,
            pytest.raises(ClusterUnreachable),
        ):
            list(nobody.list(KINDS["CronJob"], "a=b"))
        access = Access(api.url, authority.certificate, token=TOKEN, certificate=certificate, key=key)
        with KubernetesCluster(access) as cluster:
            assert list(cluster.list(KINDS["CronJob"], "a=b")) == []
