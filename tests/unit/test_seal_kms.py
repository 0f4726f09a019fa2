"""Whoever keeps the tenants' keys, the platform sees the same: one key a tenant, bound to a context, turned, destroyed."""

import importlib
import os
import stat
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest
from pydantic import SecretStr

from millrace.embed.ports import LOOPBACK, free_ports
from millrace.model.errors import Corrupt, Invalid, KeyGone, Unavailable
from millrace.seal.kms import Kms, open_kms
from millrace.settings import KmsSettings
from tests.support.kms_server import MOST_TURNS, kms_server
from tests.support.vault_server import TOKEN, Asked, Vault, vault_server

SECRET = bytes(range(32))
CONTEXT = "millrace/acme/imp_1"
REGION = "us-east-1"


@dataclass
class Keeper:
    """`open` is another process's view of the same keys; `known` are those of a tenant that can still be used."""

    settings: KmsSettings
    folder: Path
    known: Callable[[str], list[str]]

    def open(self, **changed: Any) -> Kms:
        return open_kms(self.settings.model_copy(update=changed), self.folder)


@pytest.fixture(scope="module")
def amazon() -> Iterator[str]:
    with kms_server() as endpoint:
        yield endpoint


@pytest.fixture
def vault() -> Iterator[Vault]:
    with vault_server() as running:
        yield running


@pytest.fixture
def local(tmp_path: Path) -> Keeper:
    settings = KmsSettings(kind="local", folder=tmp_path / "kms")
    return Keeper(settings, tmp_path, lambda tenant: [path.name for path in (tmp_path / "kms").glob(f"{tenant}.json")])


@pytest.fixture
def aws(amazon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    settings = KmsSettings(kind="aws", endpoint=amazon, region=REGION, prefix="test-")
    httpx2.post(f"{amazon}/moto-api/reset").raise_for_status()
    return Keeper(settings, tmp_path, lambda tenant: _enabled(amazon, tenant))


@pytest.fixture
def vaulted(vault: Vault, tmp_path: Path) -> Keeper:
    settings = KmsSettings(kind="vault", endpoint=vault.url, prefix="test-", token=SecretStr(TOKEN))
    return Keeper(settings, tmp_path, lambda tenant: [name for name in vault.keys if name == f"test-{tenant}"])


@pytest.fixture(params=["local", "aws", "vaulted"])
def keeper(request: pytest.FixtureRequest) -> Keeper:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Keeper)
    return found


@cache
def _amazon(endpoint: str) -> Any:
    return boto3.client("kms", endpoint_url=endpoint, region_name=REGION)


def _enabled(endpoint: str, tenant: str) -> list[str]:
    """As an operator sees them, not the platform."""
    client = _amazon(endpoint)
    found = []
    for key in (entry["KeyId"] for entry in client.list_keys()["Keys"]):
        tags = client.list_resource_tags(KeyId=key)["Tags"]
        if {"TagKey": "millrace:tenant", "TagValue": tenant} in tags:
            found += [key] if client.describe_key(KeyId=key)["KeyMetadata"]["Enabled"] else []
    return found


def test_what_is_wrapped_opens_elsewhere(keeper: Keeper) -> None:
    wrapped = keeper.open().wrap("acme", SECRET, CONTEXT)
    assert SECRET not in wrapped
    assert keeper.open().unwrap("acme", wrapped, CONTEXT) == SECRET
    assert len(keeper.known("acme")) == 1


def test_another_context_does_not_open(keeper: Keeper) -> None:
    kms = keeper.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    for refused in (kms.unwrap, kms.rewrap):
        with pytest.raises(KeyGone):
            refused("acme", wrapped, "millrace/acme/imp_2")


def test_another_tenants_key_does_not_open(keeper: Keeper) -> None:
    """Names that differ in case alone are two tenants."""
    kms = keeper.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    kms.wrap("Acme", SECRET, CONTEXT)
    for refused in (kms.unwrap, kms.rewrap):
        for tenant in ("Acme", "nobody"):
            with pytest.raises((KeyGone, Unavailable)):
                refused(tenant, wrapped, CONTEXT)


def test_garbage_does_not_open(keeper: Keeper) -> None:
    kms = keeper.open()
    kms.wrap("acme", SECRET, CONTEXT)
    with pytest.raises(KeyGone):
        kms.unwrap("acme", b"\xff garbage", CONTEXT)


def test_a_turned_key_opens_what_it_wrapped_before(keeper: Keeper) -> None:
    kms = keeper.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    assert (kms.describe("acme") or {})["version"] == 1
    kms.rotate("acme")
    assert (kms.describe("acme") or {})["version"] == 2
    assert kms.unwrap("acme", wrapped, CONTEXT) == SECRET
    again = kms.rewrap("acme", wrapped, CONTEXT)
    assert again != wrapped
    assert keeper.open().unwrap("acme", again, CONTEXT) == SECRET


def test_turning_a_key_that_is_not_there_makes_it(keeper: Keeper) -> None:
    kms = keeper.open()
    assert kms.describe("acme") is None
    kms.rotate("acme")
    assert (kms.describe("acme") or {})["version"] == 1


def test_after_its_end_a_key_opens_nothing_and_the_next_is_new(keeper: Keeper) -> None:
    kms = keeper.open()
    kms.wrap("other", SECRET, CONTEXT)
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    kms.destroy("acme")
    assert keeper.known("acme") == []
    assert kms.describe("acme") is None
    with pytest.raises(KeyGone):
        kms.unwrap("acme", wrapped, CONTEXT)
    renewed = kms.wrap("acme", SECRET, CONTEXT)
    assert kms.unwrap("acme", renewed, CONTEXT) == SECRET
    for refused in (kms.unwrap, kms.rewrap):
        with pytest.raises(KeyGone):
            refused("acme", wrapped, CONTEXT)
    assert len(keeper.known("other")) == 1


def test_a_key_can_be_ended_twice(keeper: Keeper) -> None:
    kms = keeper.open()
    kms.wrap("acme", SECRET, CONTEXT)
    kms.destroy("acme")
    assert kms.destroy("acme") == "now"


def test_those_who_make_the_first_key_at_once_share_it(keeper: Keeper) -> None:
    together = threading.Barrier(2)

    def first(kms: Kms) -> bytes:
        together.wait(30)
        return kms.wrap("acme", SECRET, CONTEXT)

    with ThreadPoolExecutor(2) as threads:
        wrapped = list(threads.map(first, [keeper.open(), keeper.open()]))
    assert [keeper.open().unwrap("acme", each, CONTEXT) for each in wrapped] == [SECRET, SECRET]
    assert len(keeper.known("acme")) == 1
    assert (keeper.open().describe("acme") or {})["version"] == 1


@pytest.mark.parametrize("name", ["../acme", "a/b", ""])
def test_what_is_no_tenants_name_is_not_sent(keeper: Keeper, name: str) -> None:
    with pytest.raises(Invalid):
        keeper.open().wrap(name, SECRET, CONTEXT)


@pytest.mark.parametrize("keeper", ["aws", "vaulted"], indirect=True)
def test_a_keeper_that_is_away_may_come_back(keeper: Keeper) -> None:
    wrapped = keeper.open().wrap("acme", SECRET, CONTEXT)
    (nobody,) = free_ports(1)
    away = keeper.open(endpoint=f"http://{LOOPBACK}:{nobody}")
    with pytest.raises(Unavailable) as failed:
        away.unwrap("acme", wrapped, CONTEXT)
    assert "MILLRACE_KMS__ENDPOINT" in failed.value.remedy


def test_local_keys_are_the_platforms_alone(local: Keeper) -> None:
    before = os.umask(0)
    try:
        local.open().wrap("acme", SECRET, CONTEXT)
    finally:
        os.umask(before)
    folder = local.settings.folder
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "acme.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda _: b"garbage", lambda _: b""])
def test_a_damaged_local_key_is_not_taken_for_none(local: Keeper, damage: Callable[[bytes], bytes]) -> None:
    kms = local.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    path = (local.settings.folder or Path()) / "acme.json"
    path.write_bytes(damage(path.read_bytes()))
    damaged = path.read_bytes()
    with pytest.raises(Corrupt):
        kms.unwrap("acme", wrapped, CONTEXT)
    with pytest.raises(Corrupt):
        kms.wrap("acme", SECRET, CONTEXT)
    assert path.read_bytes() == damaged


def test_amazon_keeps_a_key_for_a_week_that_nobody_can_use(aws: Keeper) -> None:
    kms = aws.open()
    kms.wrap("acme", SECRET, CONTEXT)
    (key,) = aws.known("acme")
    assert kms.destroy("acme") in {
        f"{datetime.now(UTC) + timedelta(days=7, minutes=late):%Y-%m-%d}" for late in (-5, 0)
    }
    client = _amazon(aws.settings.endpoint or "")
    assert client.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
    kms.wrap("acme", SECRET, CONTEXT)
    (renewed,) = aws.known("acme")
    behind = client.describe_key(KeyId=f"alias/{aws.settings.prefix}acme")["KeyMetadata"]["KeyId"]
    assert behind == renewed != key


def test_amazon_gives_another_key_where_one_is_turned_no_more(aws: Keeper) -> None:
    kms = aws.open()
    oldest = kms.wrap("acme", SECRET, CONTEXT)
    for _ in range(MOST_TURNS + 1):
        kms.rotate("acme")
    second = kms.wrap("acme", SECRET, CONTEXT)
    assert len(aws.known("acme")) == 2
    for _ in range(MOST_TURNS + 1):
        kms.rotate("acme")
    assert len(aws.known("acme")) == 3
    assert (kms.describe("acme") or {})["version"] == 2 * MOST_TURNS + 3
    moved = kms.rewrap("acme", oldest, CONTEXT)
    with pytest.raises(KeyGone):
        kms.unwrap("acme", kms.wrap("other", SECRET, CONTEXT), CONTEXT)
    for wrapped in (oldest, second, moved):
        assert kms.unwrap("acme", wrapped, CONTEXT) == SECRET
    kms.destroy("acme")
    assert aws.known("acme") == []
    kms.wrap("acme", SECRET, CONTEXT)
    for wrapped in (oldest, second, moved):
        with pytest.raises(KeyGone):
            kms.unwrap("acme", wrapped, CONTEXT)


def test_an_end_that_was_cut_short_can_be_done_again(aws: Keeper) -> None:
    kms = aws.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    (key,) = aws.known("acme")
    _amazon(aws.settings.endpoint or "").schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    for refused in (kms.unwrap, kms.wrap):
        with pytest.raises(KeyGone):
            refused("acme", wrapped, CONTEXT)
    assert kms.destroy("acme") != "now"
    assert kms.describe("acme") is None


def test_a_key_that_an_operator_disabled_is_away_and_not_gone(aws: Keeper) -> None:
    kms = aws.open()
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    (key,) = aws.known("acme")
    client = _amazon(aws.settings.endpoint or "")
    client.disable_key(KeyId=key)
    with pytest.raises(Unavailable):
        kms.unwrap("acme", wrapped, CONTEXT)
    client.enable_key(KeyId=key)
    assert kms.unwrap("acme", wrapped, CONTEXT) == SECRET


@pytest.mark.parametrize("tenant", ["seen-late", "answer-lost"])
def test_amazon_may_be_late_to_show_an_alias_or_lose_an_answer(aws: Keeper, tenant: str) -> None:
    """Our own alias found in the way is no reason to end the key behind it."""
    kms = aws.open()
    wrapped = kms.wrap(tenant, SECRET, CONTEXT)
    assert kms.unwrap(tenant, wrapped, CONTEXT) == SECRET
    assert len(aws.known(tenant)) == 1


def test_without_its_library_amazon_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "millrace.seal.kms_aws", raising=False)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(Invalid) as refused:
        importlib.import_module("millrace.seal.kms_aws")
    assert "pip install millrace[aws-kms]" in refused.value.remedy


def test_vault_is_asked_as_it_documents(vaulted: Keeper, vault: Vault) -> None:
    kms = vaulted.open(namespace="team")
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    kms.unwrap("acme", wrapped, CONTEXT)
    kms.rotate("acme")
    kms.rewrap("acme", wrapped, CONTEXT)
    assert kms.describe("acme") == {"keeper": "vault", "name": "transit/test-acme", "version": 2}
    assert kms.destroy("acme") == "now"
    text, bound = wrapped.decode(), b64encode(CONTEXT.encode()).decode()
    encrypt = ("POST", "encrypt/test-acme", {"plaintext": b64encode(SECRET).decode(), "associated_data": bound})
    decrypt = ("POST", "decrypt/test-acme", {"ciphertext": text, "associated_data": bound})
    assert [(asked.method, asked.path.removeprefix("/v1/transit/"), asked.body) for asked in vault.asked] == [
        ("POST", "keys/test-acme", {"type": "aes256-gcm96"}),
        encrypt,
        decrypt,
        ("POST", "keys/test-acme/rotate", None),
        decrypt,
        encrypt,
        ("GET", "keys/test-acme", None),
        ("POST", "keys/test-acme/config", {"deletion_allowed": True}),
        ("DELETE", "keys/test-acme", None),
    ]
    assert {_signed(asked) for asked in vault.asked} == {(TOKEN, "team")}


def _signed(asked: Asked) -> tuple[str | None, str | None]:
    return asked.headers.get("x-vault-token"), asked.headers.get("x-vault-namespace")


def test_without_a_namespace_vault_is_told_none(vaulted: Keeper, vault: Vault) -> None:
    vaulted.open().wrap("acme", SECRET, CONTEXT)
    assert {_signed(asked) for asked in vault.asked} == {(TOKEN, None)}


def test_vault_takes_every_tenants_name(vaulted: Keeper, vault: Vault) -> None:
    kms = vaulted.open()
    for tenant in ("acme", "acme-", "acme_"):
        assert kms.unwrap(tenant, kms.wrap(tenant, SECRET, CONTEXT), CONTEXT) == SECRET
    assert len(vault.keys) == 3


def test_a_version_that_vault_never_had_is_gone(vaulted: Keeper) -> None:
    kms = vaulted.open()
    kms.rotate("acme")
    kms.rotate("acme")
    wrapped = kms.wrap("acme", SECRET, CONTEXT)
    kms.destroy("acme")
    kms.rotate("acme")
    with pytest.raises(KeyGone):
        kms.unwrap("acme", wrapped, CONTEXT)


@pytest.mark.parametrize(
    ("changed", "sealed", "remedy"),
    [
        ({"token": SecretStr("hvs.other")}, False, "MILLRACE_KMS__TOKEN may not"),
        ({"mount": "elsewhere"}, False, "MILLRACE_KMS__MOUNT"),
        ({}, True, "Unseal"),
    ],
)
def test_vault_says_no_but_the_key_is_there(
    vaulted: Keeper, vault: Vault, changed: dict[str, Any], sealed: bool, remedy: str
) -> None:
    wrapped = vaulted.open().wrap("acme", SECRET, CONTEXT)
    vault.sealed = sealed
    with pytest.raises(Unavailable) as refused:
        vaulted.open(**changed).unwrap("acme", wrapped, CONTEXT)
    assert remedy in refused.value.remedy
    assert "hvs." not in str(refused.value)


@pytest.mark.parametrize(
    ("missing", "variable"), [("endpoint", "MILLRACE_KMS__ENDPOINT"), ("token", "MILLRACE_KMS__TOKEN")]
)
def test_vault_needs_an_address_and_a_token(vaulted: Keeper, missing: str, variable: str) -> None:
    with pytest.raises(Invalid) as refused:
        vaulted.open(**{missing: None})
    assert variable in refused.value.remedy
