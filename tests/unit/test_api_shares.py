"""Tenants share the server's threads: nobody waits for another's long work, and nothing blocks the event loop."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from millrace.api.endpoints import endpoints
from millrace.api.routes import asking
from millrace.api.shares import ASKING, Share, SharedThreads
from millrace.declare.table import parse_table
from millrace.model.errors import Overloaded
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.read.query import QueryResult
from tests.support.blocking import blocking_calls
from tests.support.platform import record
from tests.support.receiving import TakingPlatform
from tests.support.waiting import wait_until
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

QUERIES = 20
NAMES = {"tenant": "acme", "tenant_id": "acme", "table": "notes", "import_id": "imp_" + "0" * 26}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("shares"), TakingPlatform) as (platform, client):
        for tenant in ("acme", "other"):
            platform.apply(DefineTenant(tenant, agreement={}))
            declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
            platform.apply(DefineTable(tenant, "notes", declaration=declaration))
        yield platform, client


@contextmanager
def long_queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Event]]:
    """Queries that say `wait` end when the block does."""
    begun: list[threading.Event] = []
    end = threading.Event()

    def run(_readable: object, sql: str, _limits: object) -> QueryResult:
        if sql == "wait":
            begun.append(end)
            assert end.wait(60)
        return QueryResult([], [], truncated=False, seconds=0.0)

    monkeypatch.setattr(asking, "run_query", run)
    try:
        yield begun
    finally:
        end.set()


def test_twenty_long_queries_of_one_tenant_make_nobody_else_wait(
    scene: tuple[AppPlatform, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, client = scene
    busy, other = (platform.tokens.make("q", tenant) for tenant in ("acme", "other"))

    def ask(sql: str, token: str) -> Response:
        return client.post("/v1/query", json={"sql": sql}, headers={"Authorization": f"Bearer {token}"})

    with ThreadPoolExecutor(QUERIES) as pool, long_queries(monkeypatch) as begun:
        asked = [pool.submit(ask, "wait", busy) for _ in range(QUERIES)]
        wait_until(lambda: len(begun) == 2, 20, "its share of the queries to run")
        wait_until(lambda: sum(one.done() for one in asked) == QUERIES - 10, 20, "what is over the bound to be refused")
        # None of these is answered before the long queries end unless they leave room: they end when the block does.
        assert ask("now", other).status_code == 200
        headers = {"Authorization": f"Bearer {busy}"}
        assert client.get("/v1/imports", headers=headers).status_code == 200
        assert client.get("/v1/tenants/other/tables", headers={"Authorization": f"Bearer {other}"}).status_code == 200
        assert len(begun) == 2
    answers = [one.result() for one in asked]
    assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 10
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    assert (refused.json()["quota"], refused.json()["limit"]) == ("queries", "10")


def test_a_share_is_kept_and_what_is_cancelled_leaves_the_queue() -> None:
    threads, end = SharedThreads(Share("things", "things", 3, 2, 2)), threading.Event()

    def submit(tenant: str) -> "Future[bool]":
        said = ASKING.set(tenant)
        try:
            return threads.submit(end.wait, 20)
        finally:
            ASKING.reset(said)

    try:
        running = [submit("a"), submit("a")]
        waiting = [submit("a"), submit("a")]
        with pytest.raises(Overloaded, match="2 things running and 2 waiting"):
            submit("a")
        assert waiting[0].cancel()
        later = submit("a")
        of_another = submit("b")
        wait_until(of_another.running, 20, "the other's turn")
        assert not waiting[1].running()
        end.set()
        assert all(one.result(20) for one in (*running, waiting[1], later, of_another))
    finally:
        end.set()
        threads.shutdown()


def _ask(client: TestClient, endpoint: str, token: str) -> Response:
    method, _, path = endpoint.partition(" ")
    path = path.replace("/events/stream", "/events")
    url = re.sub(r"{([^}]*)}", lambda part: NAMES.get(part[1].partition(":")[0], "nothing"), path)
    body: Any = {} if method in ("PUT", "POST", "PATCH") else None
    return client.request(method, url, headers={"Authorization": f"Bearer {token}"}, json=body)


def test_no_endpoint_waits_for_disk_or_database_in_the_event_loop(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    token = platform.tokens.make("all", "acme")
    found = {}
    for endpoint in endpoints():
        if endpoint.startswith("WS"):
            continue
        platform.tokens._recent.clear()
        platform.quotas.forget("acme")
        with blocking_calls() as calls:
            for held in (token, TOKEN, "mr_unknown"):
                _ask(client, endpoint, held)
        if calls:
            found[endpoint] = sorted(set(calls))
    assert found == {}


def test_no_import_waits_for_disk_or_database_in_the_event_loop(scene: tuple[AppPlatform, TestClient]) -> None:
    platform, client = scene
    headers = {"Authorization": f"Bearer {platform.tokens.make('send', 'acme')}"}
    notes = "/v1/tenants/acme/tables/notes"
    with blocking_calls() as calls:
        begun = client.post(f"{notes}/imports?format=csv", content=b"id\n1\n2\n", headers=headers)
        assert begun.status_code == 202, begun.text
        again = client.post(f"{notes}/imports?format=csv&compression=gzip", content=b"no gzip", headers=headers)
        assert again.status_code == 422, again.text
        tus = {**headers, "Tus-Resumable": "1.0.0"}
        made = client.post(f"{notes}/uploads?format=csv", headers={**tus, "Upload-Length": "7"})
        part = {**tus, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
        assert client.head(made.headers["Location"], headers=tus).status_code == 200
        assert client.patch(made.headers["Location"], content=b"id\n3\n4\n", headers=part).status_code == 204
        assert client.get(f"/v1/imports/{begun.json()['id']}?wait=0.1", headers=headers).status_code == 200
    assert sorted(set(calls)) == []
