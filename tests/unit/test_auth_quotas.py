"""Quotas as callers meet them, and usage as it is metered: the whole application, the rules of the log, clocks of our own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.auth.quotas import Quotas
from millrace.declare.table import parse_table
from millrace.model.bucket import Bucket
from millrace.model.errors import Exceeded
from millrace.model.imports import Counts
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport, EndImport, SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.usage import day_of
from millrace.store.usage import note_storage
from millrace.upload.flight import LEAST_SHARE, STALLED_SECONDS, Flight, weight_of
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path) as (platform, client):
        agree(platform, {})
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        platform.apply(DefineTable("acme", "notes", declaration=declaration))
        yield platform, client


@pytest.fixture
def platform(scene: tuple[AppPlatform, TestClient]) -> AppPlatform:
    return scene[0]


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def agree(platform: AppPlatform, quotas: dict[str, int]) -> None:
    platform.apply(DefineTenant("acme", agreement={"client": "acme", "quotas": quotas}))
    platform.quotas.forget("acme")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def begin(platform: AppPlatform, **body: Any) -> Any:
    return platform.apply(BeginImport("acme", "notes", **body, id=new_id("imp")))


def settle(platform: AppPlatform, import_id: str, **counts: int) -> None:
    platform.apply(EndImport("acme", import_id, chunks=1, rows=counts["read"], bytes=100))
    folded = Counts(**{"chunks": 1, **counts})
    body = {"counts": folded, "durable": {"delta": 1}, "failure": None}
    platform.apply(SettleImport("acme", import_id, **body))


def test_requests_over_the_rate_are_refused_with_the_moment_it_frees(platform: AppPlatform, client: TestClient) -> None:
    agree(platform, {"requests_per_second": 3})
    token = platform.tokens.make("eyes", "acme", "viewer")
    platform.quotas = Quotas(platform.store, clock=lambda: 100.0)
    answers = [client.get("/v1/tenants/acme", headers=bearer(token)) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    refused = answers[-1]
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "1"
    told = refused.json()
    assert (told["code"], told["quota"], told["limit"], told["retry_after_seconds"]) == (
        "over_quota", "requests_per_second", "3", 1,
    )  # fmt: skip
    assert "3 requests a second" in told["detail"]
    assert client.get("/v1/tenants/acme", headers=bearer(TOKEN)).status_code == 200, "the operator's are not counted"


def test_open_imports_are_counted_exactly_by_the_log(platform: AppPlatform) -> None:
    agree(platform, {"open_imports": 2})
    first, second, third = (begin(platform) for _ in range(3))
    assert (first.refusal, second.refusal) == (None, None)
    assert {name: third.refusal.to_dict()[name] for name in ("code", "quota", "limit", "used")} == {
        "code": "over_quota", "quota": "open_imports", "limit": "2", "used": "2",
    }  # fmt: skip
    settle(platform, first.result.import_id, read=5, accepted=5)
    assert begin(platform).refusal is None
    assert begin(platform).refusal is not None
    repeated = begin(platform, idempotency_key="k")
    assert repeated.refusal is not None
    agree(platform, {})
    assert begin(platform, idempotency_key="k").refusal is None


def test_who_waits_in_line_on_a_full_tenant_gets_the_place_of_the_one_before(platform: AppPlatform) -> None:
    declaration = parse_table(record("line", ("id", "long"), key=("id",), concurrency="exclusive")).to_dict()
    made = platform.apply(DefineTable("acme", "line", declaration=declaration)).result.import_id
    settle(platform, made, read=0)
    agree(platform, {"open_imports": 1})
    first = platform.apply(BeginImport("acme", "line", id=new_id("imp"))).result.import_id
    waits = platform.apply(BeginImport("acme", "line", id=new_id("imp")))
    assert waits.result.to_dict() == {"waiting": True}
    settle(platform, first, read=1, accepted=1)
    assert begin(platform).refusal.facts["quota"] == "open_imports", "the one that waited has begun"


def test_rows_of_a_day_and_storage_are_refused_when_they_are_used_up(platform: AppPlatform) -> None:
    agree(platform, {"rows_per_day": 10, "storage_bytes": 1000})
    imports = [begin(platform).result.import_id for _ in range(2)]
    settle(platform, imports[0], read=9, accepted=8, rejected=1)
    Quotas(platform.store).refuse_rows("acme")
    settle(platform, imports[1], read=2, accepted=2)
    with pytest.raises(Exceeded) as over:
        Quotas(platform.store).refuse_rows("acme")
    assert (over.value.facts["quota"], over.value.facts["used"]) == ("rows_per_day", "11")
    assert 0 < over.value.retry_seconds <= 86_400
    agree(platform, {"storage_bytes": 1000})
    with platform.store.write() as connection:
        note_storage(connection, "acme", day_of(0), 1000)
    with pytest.raises(Exceeded, match="storage"):
        Quotas(platform.store).refuse_rows("acme")


def test_bytes_are_paced_and_a_new_import_waits_until_the_debt_is_paid(platform: AppPlatform) -> None:
    agree(platform, {"bytes_per_second": 1000})
    now = [100.0]
    quotas = Quotas(platform.store, clock=lambda: now[0])
    assert quotas.pause("acme", 1000) == 0, "a second's worth at once"
    assert quotas.pause("acme", 500) == pytest.approx(0.5)
    with pytest.raises(Exceeded, match="1,000 bytes a second"):
        quotas.refuse_rows("acme")
    now[0] += 0.5
    quotas.refuse_rows("acme")
    assert quotas.pause("other", 10**9) == 0, "nothing was agreed with it"


def test_usage_counts_each_import_once_when_it_ends(platform: AppPlatform, client: TestClient) -> None:
    begun = [begin(platform).result.import_id for _ in range(2)]
    settle(platform, begun[0], read=7, accepted=5, rejected=2)
    settle(platform, begun[0], read=7, accepted=5, rejected=2)
    platform.quotas.record_throttle("acme", 2.5, begun[1])
    platform.quotas.write()
    told = client.get("/v1/tenants/acme/usage", headers=bearer(TOKEN)).json()
    day = told["days"][0]
    assert {name: day[name] for name in ("rows_accepted", "rows_rejected", "imports", "chunks", "bytes")} == {
        "rows_accepted": 5, "rows_rejected": 2, "imports": 1, "chunks": 1, "bytes": 100,
    }  # fmt: skip
    assert day["held_seconds"] == 2.5
    assert told["lag"] == {"open_imports": 1, "over_quota_seconds": 2.5, "platform_late_seconds": 0.0}
    everyone = client.get(f"/v1/usage?day={day['day']}", headers=bearer(TOKEN)).json()["items"]
    assert [(one["tenant"], one["rows_accepted"]) for one in everyone] == [("acme", 5)]


def test_a_bucket_fills_with_time_and_never_over_its_brim() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(0.0, 25)
    assert bucket.debt_seconds(0.0) == 1.5
    assert bucket.debt_seconds(1.0, 1) == pytest.approx(0.6)
    assert bucket.debt_seconds(1000.0, 10) == 0
    bucket.take(1000.0, 10)
    assert bucket.debt_seconds(1000.0, 1) == pytest.approx(0.1)
    assert Bucket(0, 0.0).debt_seconds(0.0, 1) == 0
    empty = Bucket(0, 0.0)
    empty.take(0.0, 1)
    assert empty.debt_seconds(1e9, 1) == float("inf")


class Sky:
    """A flight of 100 chunks with a clock of its own; priorities by tenant."""

    def __init__(self, **priorities: int) -> None:
        self.now = 0.0
        self.flight = Flight(100, lambda tenant: weight_of(priorities.get(tenant, 0)), clock=lambda: self.now)
        self.sent: dict[str, int] = {}

    def fill(self, tenant: str) -> int:
        """Sends as long as there is room; how many are in flight then."""
        while self.flight.has_room(tenant):
            self.sent[tenant] = self.sent.get(tenant, 0) + 1
            self.flight.sent(tenant, f"import of {tenant}", self.sent[tenant])
        return self.flight.flying(tenant)


def test_a_whale_alone_has_all_and_shares_as_soon_as_another_comes() -> None:
    sky = Sky()
    assert sky.fill("whale") == 100
    assert sky.fill("mouse") == 50, "the newcomer gets its share at once"
    sky.flight.judged({"import of whale": 60})
    assert sky.fill("whale") == 50
    sky.flight.judged({"import of whale": 60})
    assert not sky.flight.has_room("whale"), "heard again it changes nothing"


def test_shares_follow_priorities_and_nobody_has_none() -> None:
    sky = Sky(first=5, last=-10)
    sky.flight.sent("first", "a", 1)
    sky.flight.sent("last", "b", 1)
    assert sky.fill("first") + 1 == pytest.approx(100 * 2 / 2.25, abs=2)
    assert sky.fill("last") >= LEAST_SHARE


def test_what_is_over_frees_its_place_and_a_stalled_data_plane_holds_nobody() -> None:
    sky = Sky()
    sky.fill("whale")
    sky.flight.over("import of whale")
    assert sky.flight.flying("whale") == 0
    sky.sent.clear()
    sky.fill("whale")
    sky.now += STALLED_SECONDS + 1
    assert sky.flight.has_room("whale")
    sky.flight.judged({"import of whale": 1})
    sky.flight.sent("whale", "more", 1)
    assert not sky.flight.has_room("whale")
