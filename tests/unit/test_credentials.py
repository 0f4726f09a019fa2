"""Secrets by reference: whose they are by their name alone, and where each kind is read from."""

import pickle
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.credentials import kube_secrets
from millrace.credentials.secrets import ForeignSecret, Secrets
from millrace.model.errors import Invalid, MillraceError, Missing, Unavailable
from millrace.model.secret_references import ENV_PREFIX, parse_reference, variable_prefix
from millrace.settings import SecretSettings, Settings, VaultSettings
from tests.support.kube_api import TOKEN as KUBE_TOKEN
from tests.support.kube_api import kube_api
from tests.support.tls import make_authority
from tests.support.vault_kv import JWT, KUBE_ROLE, ROLE_ID, ROOT_TOKEN, SECRET_ID, VaultKv, vault_kv

TENANTS = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,5}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,5}", fullmatch=True)


@given(st.sets(st.from_regex(r"[ab][ab_]{0,5}", fullmatch=True) | TENANTS, min_size=2, max_size=8), NAMES)
def test_no_variable_belongs_to_two_tenants(tenants: set[str], name: str) -> None:
    for one, other in combinations(tenants, 2):
        for owner, stranger in ((one, other), (other, one)):
            prefix = variable_prefix(owner)
            if prefix is not None:
                reference = parse_reference(f"env:{prefix}{name}")
                assert reference.belongs_to(owner)
                assert not reference.belongs_to(stranger)


@given(st.from_regex(r"[A-B_]{1,12}", fullmatch=True), st.lists(TENANTS, min_size=2, max_size=6, unique=True))
def test_a_variable_has_one_owner_at_most(rest: str, tenants: list[str]) -> None:
    candidates = {*tenants, "a", "a_", "a_b", "a__b", "ab", "A", "a_b_a", "b"}
    owners = [tenant for tenant in candidates if parse_reference(f"env:{ENV_PREFIX}{rest}").belongs_to(tenant)]
    assert len(owners) <= 1, owners


@pytest.mark.parametrize(
    "text",
    [
        "hush", "", "env:", "env:A-B", "env:A B", "file:", "file:/etc/passwd", "file:../x", "file:a/../b/x", "file:a//x",
        "file:a/./x", "file:a/...", "k8s:db", "k8s:a/b/c/d", "k8s:../b", "k8s:a/..", "vault:db", "vault:db#", "vault:#f",
        "vault:../b#f", "vault:a/../b#f", "vault:a/b#f#g", "vault:a?version=1#f", "vault:a%2f..%2fb#f", "s3:x", "ENV:X",
        "file:a/b\n", "vault://a#f",
    ],
)  # fmt: skip
def test_what_is_no_plain_reference_is_not_repeated(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_reference(text)
    assert not text or text not in refused.value.message


def test_files_are_read_below_the_tenant_s_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "secrets"
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", str(root))
    for tenant in ("acme", "acme_b"):
        (root / tenant / "deep").mkdir(parents=True)
        (root / tenant / "deep" / "db").write_text(f"{tenant}'s\n")
    (tmp_path / "outside").write_text("not yours")
    assert Secrets().read("acme", "file:acme/deep/db") == "acme's"
    (root / "acme" / "link").symlink_to(root / "acme_b" / "deep" / "db")
    (root / "acme" / "out").symlink_to(tmp_path / "outside")
    (root / "acme" / "folder").symlink_to(root / "acme_b" / "deep")
    (root / "third").symlink_to(root / "acme_b")
    for tenant, name in (
        ("acme", "link"),
        ("acme", "out"),
        ("acme", "folder/db"),
        ("acme", "gone"),
        ("third", "deep/db"),
    ):
        with pytest.raises(Missing):
            Secrets().read(tenant, f"file:{tenant}/{name}")
    with pytest.raises(ForeignSecret):
        Secrets().read("acme", "file:acme_b/deep/db")


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", str(tmp_path))
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "db").write_bytes(b"hush\xff")
    with pytest.raises(Invalid, match=r"acme/db is no text: byte 5 is not UTF-8") as refused:
        Secrets().read("acme", "file:acme/db")
    assert refused.value.remedy
    assert "hush" not in str(refused.value)


def test_an_empty_folder_of_secrets_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "db").write_text("not meant as a secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", "")
    with pytest.raises(Missing, match="no folder of secrets"):
        Secrets().read("acme", "file:acme/db")


def test_files_of_a_volume_of_kubernetes_are_links_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SECRET_FOLDER", str(tmp_path))
    (tmp_path / "..2026" / "acme").mkdir(parents=True)
    (tmp_path / "..2026" / "acme" / "db").write_text("hush")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "acme").symlink_to("..data/acme")
    assert Secrets().read("acme", "file:acme/db") == "hush"


def test_the_operator_s_settings_read_only_what_is_meant_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SECRET__LAKE", "hush")
    assert Secrets().read_operators("env:MILLRACE_SECRET__LAKE") == "hush"
    for reference in ("env:HOME", "vault:a#b", "k8s:a/b"):
        with pytest.raises(Invalid):
            Secrets().read_operators(reference)


def test_secrets_of_kubernetes_come_from_the_tenant_s_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_authority(tmp_path / "ca")
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(KUBE_TOKEN)
    (account / "ca.crt").write_text(authority.certificate)
    monkeypatch.setattr(kube_secrets, "ACCOUNT_FOLDER", account)
    with kube_api(authority.server()) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
        for namespace, password in (
            ("millrace-tenant-acme", "hush"),
            ("millrace-tenant-other", "not yours"),
            ("ops", "all"),
        ):
            path = f"/api/v1/namespaces/{namespace}/secrets/db"
            secret = {
                "kind": "Secret",
                "metadata": {"name": "db"},
                "data": {"password": b64encode(password.encode()).decode()},
            }
            api.objects[path] = secret
        secrets = Secrets(SecretSettings(shared={"k8s:ops/db/password": ("acme",)}))
        assert secrets.read("acme", "k8s:db/password") == "hush"
        assert secrets.read("acme", "k8s:ops/db/password") == "all"
        for reference in ("k8s:db/user", "k8s:none/password"):
            with pytest.raises(Missing):
                secrets.read("acme", reference)
        api.refusals["GET", "millrace-tenant-acme/secrets"] = 403
        with pytest.raises(Missing, match="millrace-secrets"):
            secrets.read("acme", "k8s:db/password")
        count = len(api.requests)
        with pytest.raises(ForeignSecret):
            secrets.read("acme", "k8s:millrace-tenant-other/db/password")
        assert len(api.requests) == count


LOGINS: dict[str, dict[str, Any]] = {
    "token": {"token": "env:MILLRACE_SECRET__VAULT"},
    "approle": {"role_id": ROLE_ID, "secret_id": "env:MILLRACE_SECRET__VAULT"},
    "kubernetes": {"role": KUBE_ROLE},
}


@pytest.fixture
def vault() -> Iterator[VaultKv]:
    with vault_kv() as running:
        running.secrets["millrace/acme/db"] = {"password": "hush", "port": 5432}
        running.secrets["millrace/acme_b/db"] = {"password": "not yours"}
        running.secrets["shared/db"] = {"password": "everybody's"}
        yield running


def secrets_of(vault: VaultKv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str, **more: Any) -> Secrets:
    monkeypatch.setenv("MILLRACE_SECRET__VAULT", {"token": ROOT_TOKEN, "approle": SECRET_ID}.get(login, ""))
    (tmp_path / "jwt").write_text(f"{JWT}\n")
    given = {"address": vault.url, "login": login, "jwt_file": tmp_path / "jwt", **LOGINS[login], **more}
    return Secrets(
        SecretSettings(vault=VaultSettings.model_validate(given), shared={"vault:/shared/db#password": ("*",)})
    )


@pytest.mark.parametrize("login", LOGINS)
def test_vault_gives_a_tenant_what_is_below_its_path(
    vault: VaultKv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    secrets = secrets_of(vault, tmp_path, monkeypatch, login)
    for _ in range(2):
        assert secrets.read("acme", "vault:db#password") == "hush"
    assert secrets.read("other", "vault:/shared/db#password") == "everybody's"
    assert vault.logins() == (0 if login == "token" else 1)
    for reference in ("vault:db#user", "vault:db#port", "vault:none#password"):
        with pytest.raises(Missing):
            secrets.read("acme", reference)
    count = len(vault.asked)
    with pytest.raises(ForeignSecret):
        secrets.read("acme", "vault:/millrace/acme_b/db#password")
    assert len(vault.asked) == count
    assert pickle.loads(pickle.dumps(secrets)).read("acme", "vault:db#password") == "hush"
    assert "hush" not in repr(secrets)


def test_a_token_of_vault_that_ended_or_was_revoked_is_replaced(
    vault: VaultKv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = secrets_of(vault, tmp_path, monkeypatch, "approle")
    secrets.read("acme", "vault:db#password")
    vault.tokens.clear()
    assert secrets.read("acme", "vault:db#password") == "hush"
    assert vault.logins() == 2
    vault.readable = ("millrace/acme_b/",)
    with pytest.raises(Invalid, match="policy"):
        secrets.read("acme", "vault:db#password")
    vault.secrets["millrace/acme_b/old"] = None
    with pytest.raises(Missing):
        secrets.read("acme_b", "vault:old#password")


def test_a_login_that_vault_refuses_says_so_and_not_what_was_sent(
    vault: VaultKv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = secrets_of(vault, tmp_path, monkeypatch, "approle", role_id="wrong")
    with pytest.raises(Unavailable, match=r"MILLRACE_SECRETS__VAULT") as refused:
        secrets.read("acme", "vault:db#password")
    assert SECRET_ID not in str(refused.value)


def test_vault_by_tls_needs_the_authority_that_the_operator_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_authority(tmp_path / "ca")
    (tmp_path / "ca.pem").write_text(authority.certificate)
    with vault_kv(authority.server()) as vault:
        vault.secrets["teams/acme/millrace/db"] = {"password": "hush"}
        vault.namespace = "admin/data"
        more = {"prefix": "teams/{tenant}/millrace", "namespace": "admin/data"}
        secrets = secrets_of(vault, tmp_path, monkeypatch, "kubernetes", ca_file=tmp_path / "ca.pem", **more)
        assert secrets.read("acme", "vault:db#password") == "hush"
        distrusting = secrets_of(vault, tmp_path, monkeypatch, "kubernetes", **more)
        with pytest.raises(Unavailable):
            distrusting.read("acme", "vault:db#password")


def test_without_a_vault_the_remedy_is_named() -> None:
    with pytest.raises(MillraceError, match="MILLRACE_SECRETS__VAULT__ADDRESS"):
        Secrets().read("acme", "vault:db#password")


def test_the_environment_configures_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "VAULT__ADDRESS": "https://vault:8200",
        "VAULT__LOGIN": "kubernetes",
        "VAULT__ROLE": "millrace",
        "SHARED": '{"env:MILLRACE_SECRET_COMMON": ["*"]}',
    }.items():
        monkeypatch.setenv(f"MILLRACE_SECRETS__{name}", value)
    secrets = Secrets.of(Settings())
    assert secrets.settings.vault is not None
    assert secrets.check("acme", "env:MILLRACE_SECRET_COMMON").name == "MILLRACE_SECRET_COMMON"
    for wrong in ({"VAULT__LOGIN": "token"}, {"SHARED": '{"hush": ["*"]}'}, {"VAULT__PREFIX": "all"}):
        with monkeypatch.context() as patched:
            for name, value in wrong.items():
                patched.setenv(f"MILLRACE_SECRETS__{name}", value)
            with pytest.raises(Invalid, match=r"needs token|SHARED: maps references|VAULT__PREFIX"):
                Settings()


def test_what_the_operator_s_settings_name_is_no_tenant_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SECRET_LAKE_KEY", "hush")
    monkeypatch.setenv("MILLRACE_LAKE__ACCESS_KEY", "env:MILLRACE_SECRET_LAKE_KEY")
    secrets = Secrets.of(Settings())
    with pytest.raises(ForeignSecret):
        secrets.read("lake", "env:MILLRACE_SECRET_LAKE_KEY")
    assert replace(secrets, operators=frozenset()).read("lake", "env:MILLRACE_SECRET_LAKE_KEY") == "hush"
