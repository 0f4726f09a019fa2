"""Tables that cannot be written, as callers meet them: who sees which, and what they can do about it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.api.health import PlatformHealth
from millrace.api.jobs.sink_watch import SinkWatch
from millrace.exchange.queues import ParkedRow, Queues
from millrace.model.ops.tenants import DefineTenant
from millrace.model.queues import QueueState, own_queue
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
SCHEMA = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}
REASON = "/home/lake/acme/notes cannot be written: it is damaged. Restore it."


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AppPlatform, TestClient]]:
    """Tables of two tenants are in trouble, and nothing else."""
    monkeypatch.setattr(PlatformHealth, "parts", lambda _: {"kafka": "ok"})
    looked: list[SinkWatch] = []
    shown = SinkWatch.parked_tables

    def parked_tables(self: SinkWatch) -> Any:
        if self not in looked:
            looked.append(self)
            self.look()
        return shown(self)

    monkeypatch.setattr(SinkWatch, "parked_tables", parked_tables)
    monkeypatch.setattr(SinkWatch, "_announce", lambda *_: None)
    with whole_app(tmp_path) as (platform, client):
        for tenant, table in (("acme", "notes"), ("acme", "other"), ("rival", "notes")):
            platform.apply(DefineTenant(tenant, agreement={}))
            document = {"table": table, "schema": SCHEMA}
            declared = client.put(f"/v1/tenants/{tenant}/tables/{table}", json=document, headers=OPERATOR)
            assert declared.is_success, declared.text
            park(platform, "delta", tenant, table)
        yield platform, client


def park(platform: AppPlatform, sink: str, tenant: str, table: str) -> None:
    queues, key = Queues(platform.store), own_queue(sink, tenant, table)
    queues.park([ParkedRow(key, 7, "x", 7, 100, "{}")])
    queues.finish(key, state=QueueState(parked_since=5.0, reason=REASON, tries=1))


def bearer(platform: AppPlatform, name: str, **limits: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {platform.tokens.make(name, 'acme', **limits)}"}


def test_health_names_tables_to_those_who_may_see_them(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    strangers = ({}, {"Authorization": "Bearer mr_nobody"}, {"Authorization": "Basic eA=="})
    for headers in strangers:
        answer = client.get("/v1/health", headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok"), "the platform is well"
        assert answer.json()["parked_tables"] == 3
        assert "notes" not in answer.text
    seen = {
        who: [one["table"] for one in client.get("/v1/health", headers=headers).json()["tables"]]
        for who, headers in {
            "operator": OPERATOR,
            "admin": bearer(platform, "admin", role="admin"),
            "limited": bearer(platform, "limited", role="viewer", tables=["other"]),
        }.items()
    }
    assert seen == {
        "operator": ["acme/notes", "acme/other", "rival/notes"],
        "admin": ["acme/notes", "acme/other"],
        "limited": ["acme/other"],
    }
    shown = client.get("/v1/health", headers=OPERATOR).json()["tables"][0]
    assert (shown["sink"], shown["reason"]) == ("delta", REASON)
    assert "millrace sink resume acme/notes delta" in shown["remedy"]


def test_the_platforms_own_sinks_are_listed_checked_resumed_and_waived(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    at = "/v1/tenants/acme/tables/notes/sinks"

    def listed() -> dict[str, Any]:
        return {one["name"]: one for one in client.get(at, headers=OPERATOR).json()["items"]}

    assert set(listed()) == {"delta"}
    assert (listed()["delta"]["reason"], listed()["delta"]["waiting"]) == (REASON, 1)
    checked = client.post(f"{at}/delta/check", headers=OPERATOR).json()
    assert (checked["ok"], checked["reason"]) == (False, REASON)
    park(platform, "errors", "acme", "notes")
    assert set(listed()) == {"delta", "errors"}, "only while it takes nothing"
    queues = Queues(platform.store)
    for sink in ("delta", "errors"):
        key = own_queue(sink, "acme", "notes")
        assert client.post(f"{at}/{sink}/resume", headers=OPERATOR).is_success
        assert queues.take_resumes([key]) == {key}
        waived = client.post(f"{at}/{sink}/waive", headers=OPERATOR)
        assert waived.json()["sink"] == sink, waived.text
        record = queues.get(key)
        assert record is not None
        assert record.waiver.below >= 0
        assert record.waiver.until != "~", "somebody gave it up"
        assert queues.take_resumes([key]) == {key}, "now, not after a pause"
    refused = client.put("/v1/tenants/acme/tables/named", json=_with_sink("errors"), headers=OPERATOR)
    assert (refused.status_code, "like the store of rejected rows" in refused.text) == (422, True)


def _with_sink(name: str) -> dict[str, Any]:
    sink = {"kind": "postgres", "name": name, "host": "h", "database": "d"}
    return {"table": "named", "schema": SCHEMA, "sinks": ["delta", sink]}
