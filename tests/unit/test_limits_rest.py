"""Each limit of a tenant, met over REST: more is refused with 429, Retry-After and the limit's name, and the same request of
another tenant passes. The table of limits in docs/tenancy.md is the one of the code."""

import gzip
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import event
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from millrace.api.documents.imports import VisibleImports
from millrace.api.routes import asking, subscriptions
from millrace.api.uploads import session
from millrace.declare.table import parse_table
from millrace.exchange.queues import ParkedRow, Queues
from millrace.formats import apart
from millrace.model.agreement import QUOTAS
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.queues import Member, QueueKey, QueueState
from millrace.model.sinks import SinkTarget
from millrace.model.usage import day_of
from millrace.read.query import QueryResult
from millrace.settings import LimitSettings, Settings
from millrace.store.usage import add_usage, note_storage
from tests.support.followers import EventFollower
from tests.support.platform import record
from tests.support.receiving import TakingPlatform
from tests.support.waiting import wait_until
from tests.support.whole_app import AppPlatform, served_app

SMALL = LimitSettings(
    requests_per_second=50, bytes_per_second=1000, open_imports=3, rows_per_day=100, storage_bytes=1000,
    requests=12, waiting_requests=1, uploads=2, decoders=1, senders=2, followers=2, queries=1, waiting_queries=0,
    what_ifs=1, waiting_what_ifs=0, look_ups=1, waiting_look_ups=0, tables=2, sinks=1, spans=2, tokens=3,
    subscriptions=1,
)  # fmt: skip
# Refused under the name of what runs: both together say how many a tenant may have.
TOGETHER = {"waiting_queries", "waiting_what_ifs", "waiting_look_ups"}
PARKED = "parked_bytes"
ROOT = Path(__file__).parents[2]


class LimitedPlatform(TakingPlatform):
    limits = SMALL
    parked_bytes = 10


@dataclass
class Scene:
    """A served platform; what a case leaves open ends with it."""

    platform: AppPlatform
    url: str
    patch: pytest.MonkeyPatch
    stack: ExitStack
    end: threading.Event = field(default_factory=threading.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(20))
    clients: dict[str, httpx2.Client] = field(default_factory=dict)

    def declare(self, tenant: str) -> None:
        self.platform.apply(DefineTenant(tenant, agreement={"client": tenant}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        self.platform.apply(DefineTable(tenant, "notes", declaration=declaration))
        headers = {"Authorization": f"Bearer {self.platform.tokens.make('a', tenant)}"}
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self.clients[tenant] = self.stack.enter_context(client)

    def begin(self, tenant: str) -> str:
        import_id = new_id("imp")
        self.platform.apply(BeginImport(tenant, "notes", id=import_id))
        return import_id

    def send(self, tenant: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return self.clients[tenant].request(method, path, **more)

    def busy(self, count: int, tenant: str, method: str, path: str, **more: Any) -> None:
        """So many requests that last until the case ends."""
        for _ in range(count):
            self.pool.submit(self.send, tenant, method, path, **more)

    def stalled(self, head: bytes) -> Iterator[bytes]:
        """A body whose end does not come."""
        yield head
        self.end.wait(30)

    def upload(self, tenant: str, body: Any = b"id\n1\n", query: str = "format=csv") -> httpx2.Response:
        return self.send(tenant, "POST", f"/v1/tenants/{tenant}/tables/notes/imports?{query}", content=body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AppPlatform, str]]:
    with served_app(tmp_path_factory.mktemp("limits"), kind=LimitedPlatform) as server:
        platform = server.platform
        assert isinstance(platform, AppPlatform)
        yield platform, server.url


@pytest.fixture
def scene(served: tuple[AppPlatform, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with ExitStack() as stack:
        made = Scene(*served, monkeypatch, stack)
        try:
            yield made
        finally:
            made.end.set()
            made.pool.shutdown()


# What a tenant does until it has all that it may have. Returns the request that is one too many, for any tenant.
Ask = Callable[[str], httpx2.Response]
Case = Callable[[Scene, str], Ask]


def too_many_requests(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str) -> httpx2.Response:
        return scene.send(asker, "GET", f"/v1/tenants/{asker}")

    assert ask(tenant).status_code == 200
    # As if it had asked very often just now: asking that fast takes a quicker machine.
    scene.platform.quotas._tenants[tenant].requests.take(time.monotonic(), 100 * SMALL.requests_per_second)
    return ask


def too_many_bytes(scene: Scene, tenant: str) -> Ask:
    scene.platform.quotas.pause(tenant, 10_000)
    return scene.upload


def too_many_imports(scene: Scene, tenant: str) -> Ask:
    for _ in range(SMALL.open_imports - 1):
        scene.begin(tenant)
    scene.platform.quotas.forget(tenant)
    assert scene.upload(tenant).status_code == 202
    return scene.upload


def too_many_rows(scene: Scene, tenant: str) -> Ask:
    with scene.platform.store.write() as connection:
        used = {"tenant": tenant, "day": day_of(time.time_ns() // 1000), "rows_accepted": SMALL.rows_per_day}
        add_usage(connection, [used])
    scene.platform.quotas.forget(tenant)
    return scene.upload


def too_much_storage(scene: Scene, tenant: str) -> Ask:
    with scene.platform.store.write() as connection:
        note_storage(connection, tenant, day_of(time.time_ns() // 1000), SMALL.storage_bytes)
    scene.platform.quotas.forget(tenant)
    return scene.upload


def too_much_parked(scene: Scene, tenant: str) -> Ask:
    key, queues = QueueKey("postgres", tenant, "notes", "warehouse"), Queues(scene.platform.store)
    member = Member(SinkTarget("warehouse", "postgres"), "abc", (1, 2), (1, 2))
    queues.change_members("postgres", tenant, "notes", lambda _: {"warehouse": member})
    queues.park([ParkedRow(key, 7, "x", 7, LimitedPlatform.parked_bytes, "{}")])
    queues.finish(key, state=QueueState(parked_since=5.0, reason="it is away"))
    scene.platform.sinks.look()
    return scene.upload


def too_many_at_once(scene: Scene, tenant: str) -> Ask:
    for _ in range(SMALL.requests):
        scene.pool.submit(scene.send, tenant, "POST", "/v1/query", content=scene.stalled(b"{"))
    wait_until(lambda: scene.platform.quotas.requests.total == SMALL.requests, 20, "them to be under way")
    return lambda asker: scene.send(asker, "GET", f"/v1/tenants/{asker}")


def too_many_waiting(scene: Scene, tenant: str) -> Ask:
    import_id, begun = scene.begin(tenant), []
    find = VisibleImports.find

    def slow(self: VisibleImports, wanted: str) -> dict[str, Any]:
        if wanted == import_id:
            begun.append(wanted)
            scene.end.wait(30)
        return find(self, wanted)

    scene.patch.setattr(VisibleImports, "find", slow)
    scene.busy(8, tenant, "GET", f"/v1/imports/{import_id}")
    wait_until(lambda: len(begun) == 8, 20, "its threads to be in use")
    scene.busy(1, tenant, "GET", f"/v1/imports/{import_id}")
    wait_until(lambda: scene.platform.quotas.requests.total == 9, 20, "one to wait")
    return lambda asker: scene.send(asker, "GET", "/v1/imports")


def too_many_uploads(scene: Scene, tenant: str) -> Ask:
    for _ in range(SMALL.uploads):
        scene.pool.submit(scene.upload, tenant, scene.stalled(b"id\n1\n"))
    sessions = scene.platform.sessions
    wait_until(lambda: sessions._receiving.total == SMALL.uploads, 20, "its uploads to be under way")
    return scene.upload


def too_many_decoders(scene: Scene, tenant: str) -> Ask:
    packed = gzip.compress(b"id\n1\n")
    # What has come is decoded at once, and not when there is more of it.
    scene.patch.setattr(session, "REMEMBER_SECONDS", 0.0)
    scene.pool.submit(scene.upload, tenant, scene.stalled(packed), "format=csv&compression=gzip")
    wait_until(lambda: apart._turns_for(apart.MEMORY_BYTES).running(tenant) == 1, 20, "its file to be decoded")
    return lambda asker: scene.upload(asker, packed, "format=csv&compression=gzip")


def too_many_senders(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str) -> httpx2.Response:
        url = f"ws{scene.url.removeprefix('http')}/v1/tenants/{asker}/tables/notes/stream"
        headers = {"Authorization": scene.clients[asker].headers["Authorization"]}
        try:
            scene.stack.enter_context(connect(url, additional_headers=headers, compression=None, proxy=None))
        except InvalidStatus as refused:
            answer = refused.response
            return httpx2.Response(answer.status_code, headers=dict(answer.headers), content=bytes(answer.body or b""))
        return httpx2.Response(101)

    for number in range(SMALL.senders):
        assert ask(tenant).status_code == 101
        wait_until(lambda: scene.platform.senders._slots.total > number, 20, "the sender to be in use")  # noqa: B023
    return ask


def too_many_followers(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str) -> httpx2.Response:
        follower = EventFollower(scene.url, scene.clients[asker].headers["Authorization"].split()[1])
        scene.stack.callback(follower.close)
        follower.read_until(b"\r\n\r\n")
        head, _, body = follower.received.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        return httpx2.Response(follower.status, headers=headers, content=body if follower.status != 200 else b"")

    for _ in range(SMALL.followers):
        assert ask(tenant).status_code == 200
    return ask


def too_many_queries(scene: Scene, tenant: str) -> Ask:
    begun = []

    def run(_readable: object, sql: str, _limits: object) -> QueryResult:
        if sql == "wait":
            begun.append(sql)
            scene.end.wait(30)
        return QueryResult([], [], truncated=False, seconds=0.0)

    scene.patch.setattr(asking, "run_query", run)
    scene.busy(1, tenant, "POST", "/v1/query", json={"sql": "wait"})
    wait_until(lambda: bool(begun), 20, "the query to run")
    return lambda asker: scene.send(asker, "POST", "/v1/query", json={"sql": "now"})


def too_many_what_ifs(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str, body: Any = b"id\n1\n") -> httpx2.Response:
        return scene.send(asker, "POST", f"/v1/tenants/{asker}/tables/notes/validate?format=csv", content=body)

    scene.pool.submit(ask, tenant, scene.stalled(b"id\n"))
    turns = scene.platform.shares.what_ifs
    wait_until(lambda: turns._running[tenant] == 1, 20, "it to run")
    return ask


def too_many_look_ups(scene: Scene, tenant: str) -> Ask:
    begun = []

    def judged(_networks: object) -> Callable[[str], None]:
        def judge(host: str) -> None:
            if host == "slow.example":
                begun.append(host)
                scene.end.wait(30)

        return judge

    def ask(asker: str, host: str = "quick.example") -> httpx2.Response:
        wanted = {"name": "hook", "url": f"https://{host}/"}
        return scene.send(asker, "POST", f"/v1/tenants/{asker}/subscriptions", json=wanted)

    scene.patch.setattr(subscriptions, "Judged", judged)
    scene.pool.submit(ask, tenant, "slow.example")
    wait_until(lambda: bool(begun), 20, "its look-up to run")
    return ask


def _table(scene: Scene, asker: str, name: str, **more: Any) -> httpx2.Response:
    wanted = record(name, ("id", "long"), key=("id",), **more)
    return scene.send(asker, "PUT", f"/v1/tenants/{asker}/tables/{name}?check=false", json=wanted)


def too_many_tables(scene: Scene, tenant: str) -> Ask:
    assert _table(scene, tenant, "more").status_code == 200
    assert _table(scene, tenant, "more").status_code == 200, "it is there already"
    return lambda asker: _table(scene, asker, "one_too_many")


def too_many_sinks(scene: Scene, tenant: str) -> Ask:
    sink = {"kind": "postgres", "name": "copy", "host": "db.example.org", "database": "d", "user": "u"}
    return lambda asker: _table(scene, asker, "notes", sinks=["delta", sink] if asker == tenant else ["delta"])


def too_many_spans(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str, name: str = "last") -> httpx2.Response:
        return scene.send(asker, "POST", f"/v1/tenants/{asker}/spans/{name}")

    for number in range(SMALL.spans):
        assert ask(tenant, f"s{number}").status_code == 201
    return ask


def too_many_tokens(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str, name: str = "last") -> httpx2.Response:
        return scene.send(asker, "POST", "/v1/tokens", json={"name": name, "role": "viewer"})

    for number in range(SMALL.tokens - 1):
        assert ask(tenant, f"t{number}").status_code == 201
    return ask


def too_many_subscriptions(scene: Scene, tenant: str) -> Ask:
    def ask(asker: str, name: str = "last") -> httpx2.Response:
        wanted = {"name": name, "url": "https://hooks.example/"}
        return scene.send(asker, "POST", f"/v1/tenants/{asker}/subscriptions", json=wanted)

    scene.patch.setattr(subscriptions, "Judged", lambda _networks: lambda _host: None)
    assert ask(tenant, "first").status_code == 201
    return ask


CASES: dict[str, Case] = {
    "requests_per_second": too_many_requests,
    "bytes_per_second": too_many_bytes,
    "open_imports": too_many_imports,
    "rows_per_day": too_many_rows,
    "storage_bytes": too_much_storage,
    PARKED: too_much_parked,
    "requests": too_many_at_once,
    "waiting_requests": too_many_waiting,
    "uploads": too_many_uploads,
    "decoders": too_many_decoders,
    "senders": too_many_senders,
    "followers": too_many_followers,
    "queries": too_many_queries,
    "what_ifs": too_many_what_ifs,
    "look_ups": too_many_look_ups,
    "tables": too_many_tables,
    "sinks": too_many_sinks,
    "spans": too_many_spans,
    "tokens": too_many_tokens,
    "subscriptions": too_many_subscriptions,
}


@pytest.mark.parametrize("name", CASES)
def test_over_a_limit_a_tenant_is_told_when_to_come_back_and_others_are_served(scene: Scene, name: str) -> None:
    noisy, calm = f"noisy_{name}", f"calm_{name}"
    for tenant in (noisy, calm):
        scene.declare(tenant)
    ask = CASES[name](scene, noisy)
    refused = ask(noisy)
    assert refused.status_code == 429, refused.text
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Content-Type"] == "application/problem+json"
    told = refused.json()
    assert (told["code"], told["quota"]) == ("over_quota", name)
    assert int(told["limit"]) > 0
    assert noisy in told["detail"]
    assert told["remedy"]
    passed = ask(calm)
    assert passed.status_code < 400, passed.text


def test_every_limit_has_a_case() -> None:
    assert set(CASES) == {*LimitSettings.model_fields, PARKED} - TOGETHER
    assert set(QUOTAS) <= set(CASES)


def _documented() -> dict[str, tuple[int, str, str]]:
    """By name: the default, the variable, and whether the agreement may say otherwise."""
    _, _, behind = (ROOT / "docs" / "tenancy.md").read_text().partition("\n## Limits\n")
    rows = [
        line.strip("| ").split(" | ") for line in behind.partition("\n## ")[0].splitlines() if line.startswith("| `")
    ]
    found = {}
    for name, default, scope, variable, agreed, *_ in rows:
        assert scope in ("tenant", "tenant, on each server", "table"), name
        found[name.strip("`")] = int(re.sub(r"\D", "", default.split(" (")[0])), variable.strip("`"), agreed
    return found


def test_the_table_of_limits_is_that_of_the_code() -> None:
    defaults = Settings.model_fields["limits"].default.model_dump()
    expected = {
        name: (default, f"MILLRACE_LIMITS__{name.upper()}", "yes" if name in QUOTAS else "")
        for name, default in defaults.items()
    }
    parked = Settings.model_fields["sinks"].default.parked_bytes
    expected[PARKED] = parked, "MILLRACE_SINKS__PARKED_BYTES", "yes"
    assert _documented() == expected


@contextmanager
def statements(platform: AppPlatform) -> Iterator[list[str]]:
    heard: list[str] = []

    def executed(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        heard.append(statement)

    event.listen(platform.store._engine, "before_cursor_execute", executed)
    try:
        yield heard
    finally:
        event.remove(platform.store._engine, "before_cursor_execute", executed)


def test_what_is_asked_of_the_store_about_a_tenant_uses_an_index_and_is_asked_seldom(scene: Scene) -> None:
    scene.declare("few")
    assert scene.send("few", "GET", "/v1/tenants/few").status_code == 200
    quotas = scene.platform.quotas
    with statements(scene.platform) as heard:
        for _ in range(50):
            quotas.refuse_rows("few")
            quotas._tenants["few"].begun = 0
            quotas.refuse_import("few")
        # They are asked in the event loop, however long ago the tenant was looked up.
        quotas._tenants["few"].until = 0.0
        quotas.weight("few")
        quotas.record_throttle("few", 0.1)
        assert heard == []
        quotas.forget("few")
        quotas.refuse_rows("few")
    plans = []
    with scene.platform.store.read() as connection:
        for statement in heard:
            asked = f"EXPLAIN QUERY PLAN {statement}", tuple("x" * statement.count("?"))
            plans += [str(step[3]) for step in connection.exec_driver_sql(*asked)]
    assert not any(step.startswith("SCAN") for step in plans), plans
    assert any("imports_by_state_of_tenant (state=? AND tenant=?)" in step for step in plans), plans
