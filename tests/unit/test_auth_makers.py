"""Which token is revoked by its name, and what goes with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from starlette.testclient import TestClient

from millrace.auth.failures import MOST_OF_ADDRESS
from millrace.model.errors import Unauthorised
from millrace.model.ops.tenants import DefineTenant
from millrace.store.tables import audit
from tests.support.tokens import bearer, make
from tests.support.whole_app import TOKEN, AppPlatform, whole_app


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as (platform, client):
        for tenant in ("acme", "other"):
            platform.apply(DefineTenant(tenant, agreement={}))
        yield platform, client


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def works(client: TestClient, token: str) -> bool:
    return client.get("/v1/tenants", headers=bearer(token)).status_code == 200


def revoked(client: TestClient, path: str, by: str = TOKEN) -> list[tuple[str, str | None]]:
    answer = client.delete(f"/v1/tokens/{path}", headers=bearer(by))
    assert answer.status_code == 200, answer.text
    return [(one["name"], one["tenant"]) for one in answer.json()["revoked"]]


def test_a_tenant_s_token_of_the_same_name_does_not_protect_an_operator_s(client: TestClient) -> None:
    ops, boss = make(client, "ops"), make(client, "boss", tenant="acme")
    same = make(client, "ops", by=boss)
    assert revoked(client, "ops") == [("ops", None)]
    assert (works(client, ops), works(client, same)) == (False, True)
    assert revoked(client, "ops?tenant=acme") == [("ops", "acme")]
    assert not works(client, same)


def test_what_was_made_with_a_token_goes_with_it(client: TestClient) -> None:
    boss, peer = make(client, "boss", tenant="acme"), make(client, "peer", tenant="acme")
    heir = make(client, "heir", by=boss)
    grandchild = make(client, "grandchild", by=heir, role="viewer")
    # Names that are equal to a maker's mean nothing.
    namesake = make(client, "boss", tenant="other")
    others = make(client, "child", by=namesake)
    assert revoked(client, "boss", by=peer) == [("boss", "acme"), ("grandchild", "acme"), ("heir", "acme")]
    assert [works(client, one) for one in (boss, heir, grandchild)] == [False] * 3
    assert [works(client, one) for one in (peer, namesake, others)] == [True] * 3
    again = make(client, "boss", tenant="acme")
    assert revoked(client, "boss?tenant=acme") == [("boss", "acme")]
    assert not works(client, again)


def test_a_token_that_an_operator_made_goes_with_the_operator_s(client: TestClient) -> None:
    ops = make(client, "ops")
    loader = make(client, "loader", by=ops, tenant="acme", role="writer")
    assert revoked(client, "ops") == [("ops", None), ("loader", "acme")]
    assert not works(client, loader)


def test_a_maker_that_is_being_revoked_makes_nothing_more(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    maker = platform.tokens.caller(f"Bearer {make(client, 'boss', tenant='acme')}")
    platform.tokens.revoke("boss", "acme")
    with pytest.raises(Unauthorised, match="revoked"):
        platform.tokens.make("late", "acme", maker=maker)
    assert [one["name"] for one in platform.tokens.list("acme")] == []


def test_a_viewer_cannot_fill_the_audit_log(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    viewer = make(client, "eyes", tenant="acme", role="viewer")
    for number in range(MOST_OF_ADDRESS + 20):
        assert client.delete(f"/v1/tokens/x{number}", headers=bearer(viewer)).status_code == 403
    row = platform.store.first(select(func.count()).select_from(audit).where(audit.c.status == 403))
    assert row is not None
    assert row[0] == MOST_OF_ADDRESS
