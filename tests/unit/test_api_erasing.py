"""Tenants erased everywhere with a receipt, and rows that agreements let go with time."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, select, update
from starlette.testclient import TestClient

from millrace.api.jobs.erasing import clear_erased
from millrace.api.jobs.retention import ERRORS_SPEC, let_go
from millrace.declare.table import parse_table
from millrace.lake.errors_table import REJECTED_SCHEMA, stored_rejected
from millrace.lake.schema import spec_of
from millrace.lake.sidecar import StagedChunk, write_data_file
from millrace.lake.store import Store
from millrace.lake.table import LakeTable
from millrace.model.chunk import ChunkVerdict
from millrace.model.errors import Unavailable
from millrace.model.imports import Counts
from millrace.model.names import chunk_id, new_id
from millrace.model.ops import Op
from millrace.model.ops.imports import BeginImport, CancelImport, SettleImport
from millrace.model.ops.spans import BeginSpan
from millrace.model.ops.tables import DefineTable, PurgeTable, TruncateTable
from millrace.model.ops.tenants import DefineTenant, EraseTenant
from millrace.model.table import TableDeclaration, define
from millrace.read.error_pages import page
from millrace.store import tables as t
from millrace.store.columns import metadata
from millrace.store.engine import upsert
from millrace.store.tables import erasures
from tests.support.lake import apply_rows, content
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

DAY_US = 86_400_000_000
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


class Settling(AppPlatform):
    """Whatever empties a table, or is stopped, ends at once, as if every sink had answered."""

    async def applied(self, op: Op[Any]) -> Any:
        done = await super().applied(op)
        if isinstance(op, TruncateTable | PurgeTable | CancelImport):
            settle(self, op.tenant, done.import_id)
        return done


def settle(platform: AppPlatform, tenant: str, import_id: str) -> None:
    counts = Counts(chunks=1)
    body = {"counts": counts, "durable": {"delta": 1}, "failure": None}
    platform.apply(SettleImport(tenant, import_id, **body))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path, Settling) as (platform, client):
        for tenant in ("acme", "acme2"):
            declare(platform, tenant)
        yield platform, client


@pytest.fixture
def platform(scene: tuple[AppPlatform, TestClient]) -> AppPlatform:
    return scene[0]


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def orders(sinks: Sequence[Any] = ("delta",)) -> TableDeclaration:
    return parse_table(record("orders", ("id", "long"), ("text", "string"), key=("id",), sinks=sinks))


def lake_table(platform: AppPlatform, tenant: str) -> LakeTable:
    return LakeTable(Store(platform.home.table(tenant, "orders")), spec_of(define(tenant, orders(), 1)))


def declare(platform: AppPlatform, tenant: str, sinks: Sequence[Any] = ("delta",), **agreement: Any) -> None:
    document = {"client": tenant, **agreement}
    platform.apply(DefineTenant(tenant, agreement=document))
    declaration = orders(sinks).to_dict()
    answer = platform.apply(DefineTable(tenant, "orders", declaration=declaration))
    if answer.result.import_id is not None:
        settle(platform, tenant, answer.result.import_id)


def leave(client: TestClient, tenant: str = "acme") -> None:
    answer = client.delete(f"/v1/tenants/{tenant}", headers=HEADERS, params={"confirm": tenant})
    assert answer.status_code == 200, answer.text


def fill(platform: AppPlatform, tenant: str) -> list[Path]:
    """Something of the tenant in every place there is."""
    home = platform.home
    folders = [
        home.table(tenant, "orders"), home.table_errors(tenant, "orders"), home.queue("kafka", tenant, "orders", "out"),
        home.source(tenant) / "in", home.handled(tenant), home.root / "remote" / tenant,
    ]  # fmt: skip
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_bytes(b"0123456789")
    platform.apply(BeginImport(tenant, "orders", id=new_id("imp")))
    platform.apply(BeginSpan(tenant, "nightly", lease_seconds=60))
    return folders


def erase(client: TestClient, tenant: str = "acme", **params: str) -> Any:
    return client.post(
        f"/v1/tenants/{tenant}/erase", headers=HEADERS, params={"confirm": tenant, "wait": "2", **params}
    )


def rows_naming(platform: AppPlatform, tenant: str) -> set[str]:
    """The tables of the store in which some value is the tenant's name."""
    found = set()
    with platform.store.read() as connection:
        for table in metadata.sorted_tables:
            if any(tenant in row for row in connection.execute(select(table))):
                found.add(table.name)
    return found


def test_only_a_deleted_tenant_is_erased_and_only_when_it_is_meant(client: TestClient, platform: AppPlatform) -> None:
    assert erase(client, confirm="").json()["code"] == "unconfirmed"
    assert erase(client).json()["code"] == "not_deleted"
    client.delete("/v1/tenants/acme", headers=HEADERS, params={"confirm": "acme"})
    assert erase(client).json()["code"] == "grace_not_over"
    assert erase(client, tenant="nobody").json()["code"] == "no_tenant"
    assert platform.apply(EraseTenant("acme2")).refusal.code == "not_deleted"
    assert client.get("/v1/tenants/acme", headers=HEADERS).status_code == 200
    assert client.get("/v1/erasures/acme", headers=HEADERS).json()["code"] == "no_erasure"


def test_nothing_of_an_erased_tenant_is_left_and_nothing_of_another_is_gone(
    client: TestClient, platform: AppPlatform
) -> None:
    gone, kept = fill(platform, "acme"), fill(platform, "acme2")
    token = platform.tokens.make("theirs", "acme")
    others = platform.tokens.make("others", "acme2")
    client.delete("/v1/tenants/acme", headers=HEADERS, params={"confirm": "acme"})
    answer = erase(client, now="true")
    assert answer.status_code == 200, answer.text
    receipt = answer.json()
    assert not any(folder.exists() for folder in gone)
    assert all((folder / "file").exists() for folder in kept)
    assert rows_naming(platform, "acme") <= {"audit", "erasures", "requests"}
    assert {"tables", "imports", "spans", "tokens", "tenants"} <= rows_naming(platform, "acme2")
    assert client.get("/v1/tenants", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert client.get("/v1/tenants", headers={"Authorization": f"Bearer {others}"}).status_code == 200
    assert receipt["gone"]["store_rows"]["tables"] == 1
    assert sum(one["bytes"] for one in receipt["gone"]["folders"]) == 60
    assert receipt["gone"]["emptied_sinks"] == ["orders: delta (delta)"]
    assert all(one["at_the_latest"] > receipt["erased_at"] for one in receipt["expires"])
    assert any("table log" in one for one in receipt["remains"])
    assert client.get("/v1/erasures/acme", headers=HEADERS).json() == receipt
    assert erase(client).json()["code"] == "no_tenant", "it is no more"


def test_an_erased_name_begins_anew_and_old_definitions_go_later(client: TestClient, platform: AppPlatform) -> None:
    client.delete("/v1/tenants/acme", headers=HEADERS, params={"confirm": "acme", "grace_days": "0"})
    assert erase(client).status_code == 200
    definitions = set(platform.home.definitions.iterdir())
    clear_erased(platform.store, platform.exchange, time.time_ns() // 1000)
    assert set(platform.home.definitions.iterdir()) == definitions, "a batch may be tried again"
    clear_erased(platform.store, platform.exchange, time.time_ns() // 1000 + 2 * DAY_US)
    assert len(set(platform.home.definitions.iterdir())) == len(definitions) - 1
    declare(platform, "acme")
    shown = client.get("/v1/tenants/acme", headers=HEADERS).json()
    assert (shown["revision"], shown["tables"]) == (1, ["orders"])


def fingerprint_of(client: TestClient) -> str:
    shown = client.get("/v1/tenants/acme/tables/orders", headers=HEADERS).json()
    return str(shown["definition"])


def test_a_name_declared_anew_keeps_the_definition_that_its_erased_table_had_too(
    client: TestClient, platform: AppPlatform
) -> None:
    erased = fingerprint_of(client)
    leave(client)
    assert erase(client, now="true").status_code == 200
    declare(platform, "acme")
    assert fingerprint_of(client) == erased
    clear_erased(platform.store, platform.exchange, time.time_ns() // 1000 + 2 * DAY_US)
    assert platform.exchange.definitions.read(erased).table.name == "orders"


def test_a_name_declared_anew_while_its_erased_definitions_are_cleared_keeps_them(
    client: TestClient, platform: AppPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased, read = fingerprint_of(client), platform.store.read
    leave(client)
    assert erase(client, now="true").status_code == 200

    @contextmanager
    def read_then_declare() -> Iterator[Connection]:
        with read() as connection:
            yield connection
        declare(platform, "acme")

    with monkeypatch.context() as patched:
        patched.setattr(platform.store, "read", read_then_declare)
        clear_erased(platform.store, platform.exchange, time.time_ns() // 1000 + 2 * DAY_US)
    assert fingerprint_of(client) == erased
    assert platform.exchange.definitions.read(erased).table.name == "orders"


def test_an_erasure_that_broke_off_before_the_tenant_was_restored_empties_its_tables_again(
    client: TestClient, platform: AppPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    is_away, applied = True, platform.applied

    async def failing(op: Op[Any]) -> Any:
        asked.append(type(op))
        if is_away and isinstance(op, EraseTenant):
            raise Unavailable("The log is away.")
        return await applied(op)

    monkeypatch.setattr(platform, "applied", failing)
    leave(client)
    assert erase(client, now="true").status_code == 503
    assert client.post("/v1/tenants/acme/restore", headers=HEADERS).status_code == 200
    leave(client)
    assert erase(client, now="true").status_code == 503
    assert asked == [TruncateTable, EraseTenant] * 2
    is_away = False
    assert erase(client, now="true").status_code == 200
    assert asked[4:] == [EraseTenant], "of the same departure it goes on"


def test_an_erasure_that_broke_off_is_carried_to_its_end(client: TestClient, platform: AppPlatform) -> None:
    folders = fill(platform, "acme")
    client.delete("/v1/tenants/acme", headers=HEADERS, params={"confirm": "acme"})
    blocked = platform.home.lake / "acme"
    (blocked / "orders" / "file").unlink()
    (blocked / "orders").rmdir()
    blocked.rmdir()
    # No folder can be removed as one that is a link: the erasure ends half-way.
    blocked.symlink_to(platform.home.root / "elsewhere", target_is_directory=True)
    (platform.home.root / "elsewhere").mkdir()
    assert erase(client, now="true").status_code == 500
    blocked.unlink()
    assert erase(client, now="true").status_code == 200
    assert not any(folder.exists() for folder in folders)


def rejected(platform: AppPlatform, import_id: str, version: int) -> None:
    """One rejected row of an import, as the data plane stores it."""
    table = LakeTable(Store(platform.home.table_errors("acme", "orders")), ERRORS_SPEC)
    row = {"row": 1, "line": 2, "raw": b"x", "reasons": []}
    rows = stored_rejected(ChunkVerdict(import_id, 0, version, 1, 0, 1), pa.Table.from_pylist([row], REJECTED_SCHEMA))
    described = [StagedChunk(chunk_id(import_id, 0), 0, 1, version)]
    table.apply([write_data_file(table.store, rows, (), f"{import_id}-0", described)])


def ended_import(platform: AppPlatform, days_ago: float, lasted_days: float = 0.0) -> str:
    now_us = time.time_ns() // 1000
    import_id = str(platform.apply(BeginImport("acme", "orders", id=new_id("imp"))).result.import_id)
    begun, ended = now_us - int((days_ago + lasted_days) * DAY_US), now_us - int(days_ago * DAY_US)
    values = {"first_version": begun, "begun_us": begun, "ended_us": ended, "state": "completed"}
    with platform.store.write() as connection:
        connection.execute(update(t.imports).where(t.imports.c.id == import_id).values(values))
    rejected(platform, import_id, begun)
    return import_id


def test_an_erasure_that_an_earlier_version_began_is_carried_to_its_end(
    client: TestClient, platform: AppPlatform
) -> None:
    # That version recorded names and kinds of sinks only, and was stopped after the store had forgotten the tenant.
    sinks = [{"table": "orders", "sinks": [{"name": "bucket", "kind": "delta-remote"}]}]
    known = {"deleted_us": 1, "rows": {}, "not_reached": [], "sinks": sinks}
    begun = {"tenant": "old", "begun_us": 1, "is_done": False, "receipt": known, "definitions": []}
    with platform.store.write() as connection:
        upsert(connection, erasures, begun)
    table = platform.home.table("old", "orders")
    table.mkdir(parents=True)
    answer = erase(client, "old", now="true")
    assert answer.status_code == 200, answer.text
    assert not table.exists()
    assert any("'bucket'" in one and "delete them there" in one for one in answer.json()["remains"])


def test_rejected_rows_go_when_their_import_ended_longer_ago_than_was_agreed(platform: AppPlatform) -> None:
    declare(platform, "acme", data_retention_period_days=3)
    old, recent = ended_import(platform, 4), ended_import(platform, 2)

    def left(import_id: str) -> int:
        return len(page(Store(platform.home.table_errors("acme", "orders")), import_id, None, 10).items)

    assert (left(old), left(recent)) == (1, 1)
    assert let_go(platform.store, platform.exchange, platform.sink_context, time.time_ns() // 1000) == 1
    assert (left(old), left(recent)) == (0, 1)
    assert let_go(platform.store, platform.exchange, platform.sink_context, time.time_ns() // 1000) == 0, (
        "nothing more to do"
    )


def test_an_import_that_took_long_keeps_its_rejected_rows_until_it_ended_long_ago(platform: AppPlatform) -> None:
    declare(platform, "acme", data_retention_period_days=3)
    long = ended_import(platform, 1, lasted_days=5)
    let_go(platform.store, platform.exchange, platform.sink_context, time.time_ns() // 1000)
    assert len(page(Store(platform.home.table_errors("acme", "orders")), long, None, 10).items) == 1
    let_go(platform.store, platform.exchange, platform.sink_context, time.time_ns() // 1000 + 3 * DAY_US)
    assert page(Store(platform.home.table_errors("acme", "orders")), long, None, 10).items == []


def test_rows_in_delta_go_by_age_only_where_that_was_agreed(platform: AppPlatform) -> None:
    now_us = time.time_ns() // 1000
    old, recent = now_us - 11 * DAY_US, now_us - 9 * DAY_US
    table = lake_table(platform, "acme")
    apply_rows(table, [(1, old), (2, old + 1)], [(2, recent), (3, recent + 1)])
    assert let_go(platform.store, platform.exchange, platform.sink_context, now_us) == 0
    assert content(table) == [(1, old), (2, recent), (3, recent + 1)]
    declare(platform, "acme", sink_retention_days=10)
    assert let_go(platform.store, platform.exchange, platform.sink_context, now_us) == 1
    assert content(table) == [(2, recent), (3, recent + 1)]


def test_what_cannot_be_let_go_in_one_place_is_let_go_in_the_others(platform: AppPlatform) -> None:
    now_us = time.time_ns() // 1000
    keys = {"access_key": "env:MILLRACE_SECRET_ACME_GONE", "secret_key": "env:MILLRACE_SECRET_ACME_GONE"}
    elsewhere = {"kind": "delta", "name": "elsewhere", "location": "s3://bucket/lake", **keys}
    declare(platform, "acme", sinks=[elsewhere, "delta"], sink_retention_days=10)
    declare(platform, "acme2", sink_retention_days=10)
    ended_import(platform, 40)
    (damaged,) = platform.home.table_errors("acme", "orders").glob("*.parquet")
    damaged.write_bytes(b"no parquet")
    for tenant in ("acme", "acme2"):
        apply_rows(lake_table(platform, tenant), [(1, now_us - 11 * DAY_US)])
    assert let_go(platform.store, platform.exchange, platform.sink_context, now_us) == 2
    assert [content(lake_table(platform, tenant)) for tenant in ("acme", "acme2")] == [[], []]
