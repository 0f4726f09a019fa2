"""Finding a cluster: every way a kubeconfig can say who we are, and the account of a pod."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.k8s.access import Access, find_access
from millrace.k8s.cluster import KubernetesCluster
from millrace.model.errors import Invalid


def kubeconfig(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "here") -> Path:
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443/", **(cluster or {})}}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def environ(*files: Path, **more: str) -> dict[str, str]:
    return {"KUBECONFIG": os.pathsep.join(map(str, files)), "PATH": os.environ["PATH"], **more}


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_token_and_an_authority_given_as_text(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"token": "abc"}, {"certificate-authority-data": in_base64("PEM")})
    access = find_access(environ=environ(file))
    assert (access.server, access.authority, access.bearer(), access.verify) == (
        "https://here:6443",
        "PEM",
        "abc",
        True,
    )
    assert "abc" not in repr(access)


def test_files_are_found_beside_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_text(name)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    access = find_access(environ=environ(kubeconfig(tmp_path / "config", user, {"certificate-authority": "ca.crt"})))
    assert (access.authority, access.certificate, access.key) == ("ca.crt", "me.crt", "me.key")


def test_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = find_access(environ=environ(kubeconfig(tmp_path / "config", {"tokenFile": "token"})))
    assert access.bearer() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.bearer() == "second"


def test_of_several_files_the_first_that_names_a_thing_wins_and_a_context_can_be_chosen(tmp_path: Path) -> None:
    files = [kubeconfig(tmp_path / name, {"token": name}, name=name) for name in ("one", "two")]
    assert find_access(environ=environ(tmp_path / "missing", *files)).server == "https://one:6443"
    assert find_access("two", environ(*files)).bearer() == "two"
    with pytest.raises(Invalid, match="There are: one, two"):
        find_access("three", environ(*files))


def plugin(tmp_path: Path, script: str, **more: Any) -> dict[str, str]:
    section = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", script],
        **more,
    }
    return environ(kubeconfig(tmp_path / "config", {"exec": section}))


def test_a_clouds_plugin_is_asked_for_a_credential(tmp_path: Path) -> None:
    script = (
        "import json, os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "print(json.dumps({'status': {'token': os.environ['WHO'] + asked['spec']['cluster']['server']}}))"
    )
    given = plugin(tmp_path, script, env=[{"name": "WHO", "value": "me@"}], provideClusterInfo=True)
    assert find_access(environ=given).bearer() == "me@https://here:6443/"


@pytest.mark.parametrize(
    ("script", "why"), [("import sys; sys.exit('log in first')", "log in first"), ("print('hm')", "Expecting value")]
)
def test_a_plugin_that_fails_says_why(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        find_access(environ=plugin(tmp_path, script))


def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    section = {"command": "no-such-login", "apiVersion": "client.authentication.k8s.io/v1"}
    with pytest.raises(Invalid, match="no-such-login"):
        find_access(environ=environ(kubeconfig(tmp_path / "config", {"exec": section})))


def test_in_a_pod_its_own_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod")
    (tmp_path / "ca.crt").write_text("PEM")
    inside = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = find_access(environ=inside, account=tmp_path)
    assert (access.server, access.authority, access.bearer()) == ("https://[fd00::1]:443", "PEM", "pod")


def test_without_either_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="Set KUBECONFIG"):
        find_access(environ={"HOME": str(tmp_path)}, account=tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is no kubeconfig"),
        ("- a", "is no kubeconfig"),
        ("clusters: [{cluster: {}}]", "is no kubeconfig"),
        ("{}", "No context"),
        (json.dumps({"current-context": "x"}), "no context 'x'"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Invalid, match=why):
        find_access(environ=environ(tmp_path / "config"))


def test_what_kubernetes_has_dropped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="auth-provider"):
        find_access(environ=environ(kubeconfig(tmp_path / "config", {"auth-provider": {"name": "gcp"}})))


@pytest.mark.parametrize("user", [{"client-certificate": "gone.crt"}, {"tokenFile": "gone"}])
def test_a_file_that_is_missing_is_named(tmp_path: Path, user: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="gone"):
        find_access(environ=environ(kubeconfig(tmp_path / "config", user))).bearer()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="is not an address"):
        KubernetesCluster(Access("https://x:y"))


def test_credentials_that_are_none_are_refused() -> None:
    for wrong in (Access("https://x", "no PEM"), Access("https://x", certificate="no", key="no")):
        with pytest.raises(Invalid, match="cannot be read"):
            KubernetesCluster(wrong)


def test_what_is_not_base64_is_refused(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"token": "t"}, {"certificate-authority-data": "ä"})
    with pytest.raises(Invalid, match="not base64"):
        find_access(environ=environ(file))
