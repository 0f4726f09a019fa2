"""Tokens with roles, expiry and last use, and the audit log, at the surface of the whole application."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import DBAPIError
from starlette.testclient import TestClient

from millrace.model.names import new_id
from millrace.model.ops.tenants import DefineTenant
from millrace.store.tables import audit
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

SECOND_IN_DAYS = 1 / 86_400


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as (platform, client):
        for tenant in ("acme", "other"):
            platform.apply(DefineTenant(tenant, agreement={}))
        yield platform, client


@pytest.fixture
def platform(scene: tuple[AppPlatform, TestClient]) -> AppPlatform:
    return scene[0]


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make(client: TestClient, name: str, by: str = TOKEN, **wanted: Any) -> str:
    made = client.post("/v1/tokens", json={"name": name, **wanted}, headers=bearer(by))
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


def listed(client: TestClient, by: str = TOKEN) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in client.get("/v1/tokens", headers=bearer(by)).json()["items"]}


def test_a_token_works_until_it_is_revoked_and_its_last_use_is_known(platform: AppPlatform, client: TestClient) -> None:
    token = make(client, "loader", tenant="acme", role="writer", tables=["notes"])
    known = listed(client)["loader"]
    assert (known["role"], known["tables"], known["made_by"]) == ("writer", ["notes"], "admin")
    assert known["last_used_at"] is None
    assert client.get("/v1/tenants", headers=bearer(token)).status_code == 200
    used = listed(client)["loader"]["last_used_at"]
    assert used is not None
    platform.tokens.note_uses()
    assert listed(client)["loader"]["last_used_at"] == used, "written as it was"
    assert client.delete("/v1/tokens/loader", headers=bearer(TOKEN)).status_code == 204
    assert client.get("/v1/tenants", headers=bearer(token)).status_code == 401


def test_a_token_expires(client: TestClient) -> None:
    long, short = make(client, "long", days=1), make(client, "short", days=SECOND_IN_DAYS / 1e6)
    assert client.get("/v1/tenants", headers=bearer(long)).status_code == 200
    refused = client.get("/v1/tenants", headers=bearer(short))
    assert (refused.status_code, refused.json()["code"]) == (401, "expired")


def test_an_admin_makes_tokens_of_its_own_tenant_and_no_operators(client: TestClient) -> None:
    boss = make(client, "boss", tenant="acme", role="admin")
    make(client, "boss", tenant="other", role="admin")
    make(client, "eyes", by=boss, role="viewer")
    assert set(listed(client, boss)) == {"boss", "eyes"}
    assert {one["tenant"] for one in listed(client, boss).values()} == {"acme"}
    for wanted, code in (
        ({"tenant": "other"}, "no_tenant"), ({"tenant": "nobody"}, "no_tenant"), ({"role": "operator"}, "bad_role"),
        ({"role": "king"}, "bad_role"), ({"role": "admin", "tables": ["notes"]}, "bad_role"),
        ({"role": "viewer", "tables": ["../x"]}, "bad_name"), ({"name": "eyes"}, "clash"),
    ):  # fmt: skip
        refused = client.post("/v1/tokens", json={"name": "more", **wanted}, headers=bearer(boss))
        assert refused.json()["code"] == code, wanted
    several = client.delete("/v1/tokens/boss", headers=bearer(TOKEN))
    assert several.status_code == 409, "an operator must say whose"
    assert client.delete("/v1/tokens/boss?tenant=other", headers=bearer(boss)).status_code == 404
    assert client.delete("/v1/tokens/boss?tenant=other", headers=bearer(TOKEN)).status_code == 204
    assert set(listed(client, boss)) == {"boss", "eyes"}


def test_the_store_holds_no_usable_token(platform: AppPlatform, client: TestClient) -> None:
    token = make(client, "secret", tenant="acme")
    client.post("/v1/tenants/acme/tables/notes/truncate", headers=bearer(token))
    kept = b"".join(path.read_bytes() for path in platform.home.root.glob("control.db*"))
    assert b"secret" in kept
    assert token.encode() not in kept
    assert token[3:].encode() not in kept


def entries(client: TestClient, by: str = TOKEN, **params: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/audit", headers=bearer(by), params=params).json()["items"]
    return found


def test_every_change_is_in_the_audit_log(platform: AppPlatform, client: TestClient) -> None:
    boss = make(client, "boss", tenant="acme", role="admin")
    reader = make(client, "eyes", tenant="acme", role="reader")
    client.post("/v1/tenants/acme/subscriptions", headers={**bearer(boss), "X-Request-Id": "mine-1"}, json={"bad": 1})
    client.delete("/v1/tenants/acme/tables/notes", headers=bearer(reader))
    client.get("/v1/tenants/acme", headers=bearer(boss))
    answer = client.put("/v1/tenants/acme", headers=bearer(TOKEN), json={"description": "Ours"})
    found = [(e["who"], e["role"], e["action"], e["subject"], e["status"], e["outcome"]) for e in entries(client)]
    assert found == [
        ("admin", "operator", "POST /v1/tokens", "", 201, "done"),
        ("admin", "operator", "POST /v1/tokens", "", 201, "done"),
        ("boss", "admin", "POST /v1/tenants/{tenant}/subscriptions", "acme", 422, "refused"),
        ("eyes", "reader", "DELETE /v1/tenants/{tenant}/tables/{table}", "acme/notes", 403, "refused"),
        ("admin", "operator", "PUT /v1/tenants/{tenant}", "acme", 200, "done"),
    ]
    told = entries(client)
    assert {one["from"] for one in told} == {"testclient"}
    assert told[2]["request"] == "mine-1"
    assert told[-1]["request"] == answer.headers["x-request-id"]
    assert all(one["tenant"] == "acme" for one in told), "also what an operator did to it"
    assert boss not in str(told)


def test_an_admin_sees_its_own_tenant_only_and_nobody_changes_an_entry(
    platform: AppPlatform, client: TestClient
) -> None:
    boss = make(client, "boss", tenant="acme", role="admin")
    client.put("/v1/tenants/other", headers=bearer(TOKEN), json={"description": "Theirs"})
    client.post(f"/v1/imports/{new_id('imp')}/cancel", headers=bearer(TOKEN))
    assert [one["tenant"] for one in entries(client)] == ["acme", "other", None]
    assert [one["tenant"] for one in entries(client, boss)] == ["acme"]
    assert client.get("/v1/audit?tenant=other", headers=bearer(boss)).status_code == 404
    assert len(entries(client, newest="true", limit="2")) == 2
    for change in (update(audit).values(who="nobody"), delete(audit)):
        with pytest.raises(DBAPIError, match="only ever added"), platform.store.write() as connection:
            connection.execute(change)
    assert len(entries(client)) == 3
