"""A tenant's key by REST: shown without being told, rotated, destroyed when nothing is under way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.declare.table import parse_table
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
ROUTE = "/v1/tenants/acme/key"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as (platform, client):
        agreement = {"client": "acme", "encryption": True}
        platform.apply(DefineTenant("acme", agreement=agreement))
        yield platform, client


def begin(platform: AppPlatform) -> str:
    declaration = parse_table(record("orders", ("id", "long"), key=("id",))).to_dict()
    platform.apply(DefineTable("acme", "orders", declaration=declaration))
    import_id = new_id("imp")
    platform.apply(BeginImport("acme", "orders", id=import_id))
    return import_id


def ask(client: TestClient, method: str, route: str = ROUTE, **params: str) -> Any:
    return client.request(method, route, headers=HEADERS, params=params)


def test_a_key_is_shown_rotated_and_never_told(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    shown = ask(client, "GET").json()
    assert (shown["encryption"], shown["key"], shown["data_keys"]) == (True, None, 0)
    keyring = platform.sealing.keyring
    sealed = keyring.seal("acme", "orders", keyring.new("acme", "imp_1"), "imp_1").close(b"rows", "0")
    assert ask(client, "POST", f"{ROUTE}/rotate").json()["rewrapped"] == 1
    shown = ask(client, "GET")
    assert (shown.json()["key"]["version"], shown.json()["data_keys"]) == (2, 1)
    secret = (platform.home.root / "kms" / "acme.json").read_text()
    assert shown.text not in secret
    assert "keyData" not in shown.text
    assert keyring.seal("acme", "orders", "imp_1", "imp_1").open(sealed, "0") == b"rows"


def test_a_key_is_destroyed_when_it_is_meant_and_nothing_is_under_way(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    assert ask(client, "DELETE", confirm="acme").json()["code"] == "no_tenant_key"
    platform.sealing.keyring.new("acme", "imp_1")
    assert ask(client, "DELETE").json()["code"] == "unconfirmed"
    begin(platform)
    refused = ask(client, "DELETE", confirm="acme")
    assert (refused.status_code, refused.json()["code"]) == (409, "under_way")
    assert platform.sealing.keyring.seal("acme", "orders", "imp_1", "imp_1")


def test_a_destroyed_key_opens_nothing(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    platform.sealing.keyring.new("acme", "imp_1")
    done = ask(client, "DELETE", confirm="acme")
    assert (done.status_code, done.json()["destroyed"]) == (200, "now")
    assert not (platform.home.root / "kms" / "acme.json").exists()
    assert ask(client, "GET").json()["key"] is None


def test_nobody_s_key_is_missing(scene: tuple[AppPlatform, TestClient]) -> None:
    _, client = scene
    assert ask(client, "GET", "/v1/tenants/x/key").status_code == 404
    assert ask(client, "POST", "/v1/tenants/x/key/rotate").status_code == 404
