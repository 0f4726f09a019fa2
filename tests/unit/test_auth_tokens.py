"""Tokens with roles, expiry and last use, and the audit log, at the surface of the whole application."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import DBAPIError
from starlette.testclient import TestClient

from millrace.auth.failures import MOST_OF_ADDRESS, MOST_OF_ALL, WINDOW_SECONDS, FailureLimit
from millrace.declare.table import parse_table
from millrace.model.names import new_id
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.store.tables import audit
from tests.support.tokens import bearer, make
from tests.support.whole_app import TOKEN, AppPlatform, served_app, whole_app

IMPORT = new_id("imp")
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
    assert client.delete("/v1/tokens/loader?tenant=acme", headers=bearer(TOKEN)).status_code == 200
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
    whose = client.delete("/v1/tokens/boss", headers=bearer(TOKEN))
    assert (whose.status_code, whose.json()["code"]) == (404, "no_token"), "the platform has none"
    assert "acme, other" in whose.json()["remedy"]
    assert client.delete("/v1/tokens/boss?tenant=other", headers=bearer(boss)).status_code == 404
    assert client.delete("/v1/tokens/boss?tenant=other", headers=bearer(TOKEN)).status_code == 200
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


def expiry_days(client: TestClient, name: str, by: str = TOKEN) -> float:
    expires = datetime.fromisoformat(listed(client, by)[name]["expires_at"])
    return (expires - datetime.now(UTC)).total_seconds() / 86_400


def test_a_token_expires_by_itself_and_never_outlives_the_one_that_made_it(client: TestClient) -> None:
    make(client, "plain", tenant="acme")
    assert 89.9 < expiry_days(client, "plain") <= 90
    boss = make(client, "boss", tenant="acme", role="admin", days=2)
    make(client, "heir", by=boss)
    assert 1.9 < expiry_days(client, "heir") <= 2
    make(client, "shorter", by=boss, days=1)
    assert 0.9 < expiry_days(client, "shorter") <= 1
    refused = client.post("/v1/tokens", json={"name": "eternal", "days": 30}, headers=bearer(boss))
    assert (refused.status_code, refused.json()["code"]) == (403, "outlives_its_maker")
    assert "2 days or fewer" in refused.json()["remedy"]
    ruler = make(client, "ruler", days=1)
    heir = client.post("/v1/tokens", json={"name": "heir of ruler", "days": 2}, headers=bearer(ruler))
    assert heir.status_code == 403, "operators neither"


def test_the_operator_s_days_are_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_API__TOKEN_DAYS", "7")
    with whole_app(tmp_path) as (_, client):
        make(client, "weekly")
        assert 6.9 < expiry_days(client, "weekly") <= 7


def test_another_token_in_client_json_ends_the_one_before(platform: AppPlatform, client: TestClient) -> None:
    made = make(client, "other admin")
    assert client.get("/v1/tenants", headers=bearer(TOKEN)).status_code == 200
    platform.tokens.keep("mr_changed", "admin", None)
    assert client.get("/v1/tenants", headers=bearer(TOKEN)).status_code == 401
    for token in ("mr_changed", made):
        assert client.get("/v1/tenants", headers=bearer(token)).status_code == 200


@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_stream_of_events_ends_with_its_token(tmp_path: Path, is_revoked: bool) -> None:
    with served_app(tmp_path) as server:
        server.apply(DefineTenant("acme", agreement={}))
        soon_us = None if is_revoked else time.time_ns() // 1000 + 2_000_000
        token = server.platform.tokens.make("follower", "acme", expires_us=soon_us)
        url = f"{server.url}/v1/events/stream"
        with httpx2.stream("GET", url, headers=bearer(token), timeout=20) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("id:")
            if is_revoked:
                server.platform.tokens.revoke("follower", "acme")
            begun = time.monotonic()
            for _ in lines:
                assert time.monotonic() - begun < 15
        assert time.monotonic() - begun < 15


def test_who_is_locked_out_is_in_the_audit_log_and_cannot_fill_it(client: TestClient) -> None:
    viewer = make(client, "eyes", tenant="acme", role="viewer")
    assert client.get("/v1/audit", headers=bearer(viewer)).status_code == 403
    for number in range(50):
        assert client.get("/v1/tenants/acme", headers=bearer(f"mr_guess{number}")).status_code == 401
    found = [(one["who"], one["action"], one["subject"], one["status"]) for one in entries(client)][1:]
    assert found[0] == ("eyes", "GET /v1/audit", "", 403)
    assert found[1] == ("", "GET /v1/tenants/{tenant}", "acme", 401)
    assert len(found) == MOST_OF_ADDRESS
    assert "guess" not in str(entries(client))


def test_what_was_left_out_of_the_log_is_counted() -> None:
    now = [0.0]
    limit = FailureLimit(lambda: now[0])
    taken = [limit.take("192.0.2.1") for _ in range(MOST_OF_ADDRESS + 5)]
    assert taken == [0] * MOST_OF_ADDRESS + [None] * 5
    assert limit.take("192.0.2.2") == 5
    assert [limit.take(f"2001:db8::{one}") is None for one in range(MOST_OF_ADDRESS + 1)][-1], "one network"
    now[0] += WINDOW_SECONDS
    assert limit.take("192.0.2.1") == 1
    many = [limit.take(f"10.0.{one // 250}.{one % 250}") for one in range(MOST_OF_ALL + 20)]
    assert sum(one is not None for one in many) == MOST_OF_ALL - 1


def test_whoever_reads_rows_documents_or_logs_leaves_an_entry(platform: AppPlatform, client: TestClient) -> None:
    reader = make(client, "eyes", tenant="acme", role="reader")
    asked = [
        ("POST", "/v1/query", {"sql": "select 1"}, "POST /v1/query"),
        ("GET", "/v1/tenants/acme/export", None, "GET /v1/tenants/{tenant}/export"),
        ("GET", "/v1/tenants/acme/app/runs/r1/log", None, "GET /v1/tenants/{tenant}/app/runs/{run}/log"),
        ("GET", f"/v1/imports/{IMPORT}/errors", None, "GET /v1/imports/{import_id}/errors"),
        ("GET", f"/v1/imports/{IMPORT}/errors/export", None, "GET /v1/imports/{import_id}/errors/export"),
    ]
    for method, path, body, _ in asked:
        client.request(method, path, json=body, headers=bearer(reader))
    found = entries(client)[1:]
    assert [one["action"] for one in found] == [action for *_, action in asked]
    assert {(one["who"], one["tenant"]) for one in found} == {("eyes", "acme")}


def test_a_query_of_an_operator_is_told_to_each_tenant_whose_rows_it_reads(
    platform: AppPlatform, client: TestClient
) -> None:
    schema = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
    for tenant in ("acme", "other"):
        stored = parse_table({"schema": schema, "primary_key": ["id"], "sinks": ["delta"]}).to_dict()
        platform.apply(DefineTable(tenant, "notes", declaration=stored))
    boss = make(client, "boss", tenant="other", role="admin")
    sql = "select count(*) from acme.notes union all select count(*) from other.notes"
    client.post("/v1/query", json={"sql": sql}, headers=bearer(TOKEN))
    found = [(one["tenant"], one["subject"]) for one in entries(client) if one["action"] == "POST /v1/query"]
    assert found == [("acme", "acme/notes"), ("other", "other/notes")]
    assert [one["subject"] for one in entries(client, boss) if one["who"] == "admin"][-1] == "other/notes"
    assert "select" not in str(entries(client))
