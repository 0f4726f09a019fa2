"""An erased tenant's rows leave the buckets too: the receipt says what was deleted there, and what could not be."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from starlette.testclient import TestClient

from millrace.declare.table import parse_table
from millrace.lake.schema import spec_of
from millrace.lake.table import LakeTable
from millrace.model.imports import Counts
from millrace.model.ops import Op
from millrace.model.ops.imports import CancelImport, SettleImport
from millrace.model.ops.tables import DefineTable, PurgeTable, TruncateTable
from millrace.model.ops.tenants import DefineTenant
from millrace.model.table import define
from millrace.sink.delta.places import remote_store
from millrace.sink.delta.settings import DeltaRemoteSettings
from tests.support.lake import apply_rows
from tests.support.moto_server import ACCESS_KEY, REGION, S3, SECRET_KEY
from tests.support.platform import record
from tests.support.remote_delta import bucket_settings
from tests.support.sink_context import SHARED_SECRETS
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PLATFORMS = {"kind": "delta", "name": "delta", "location": "platform"}


class Settling(AppPlatform):
    """Whatever empties a table ends at once: here the old files in the bucket are what is asked about."""

    async def applied(self, op: Op[Any]) -> Any:
        done = await super().applied(op)
        if isinstance(op, TruncateTable | PurgeTable | CancelImport):
            settle(self, op.tenant, done.import_id)
        return done


def settle(platform: AppPlatform, tenant: str, import_id: str) -> None:
    platform.apply(SettleImport(tenant, import_id, counts=Counts(chunks=1), durable={"delta": 1}, failure=None))


@pytest.fixture
def lake(s3: S3, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Where the operator keeps tables."""
    monkeypatch.setenv("MILLRACE_SECRET_TEST_ACCESS", ACCESS_KEY)
    monkeypatch.setenv("MILLRACE_SECRET_TEST_SECRET", SECRET_KEY)
    monkeypatch.setenv("MILLRACE_SECRETS__SHARED", SHARED_SECRETS)
    settings = bucket_settings(s3)
    for name, value in settings.items():
        monkeypatch.setenv(f"MILLRACE_LAKE__{name.upper()}", value)
    return settings


@pytest.fixture
def scene(tmp_path: Path, lake: dict[str, Any]) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path, Settling, "127.0.0.0/8") as (platform, client):
        yield platform, client


def keys_in(s3: S3, location: str) -> list[str]:
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name=REGION,
    )
    found = client.list_objects_v2(Bucket=location.split("/")[2]).get("Contents", [])
    client.close()
    return [one["Key"] for one in found]


def fill(platform: AppPlatform, tenant: str, sinks: Sequence[dict[str, Any]]) -> None:
    """A table with several versions, as a courier leaves it: files that the last version does not name any more."""
    platform.apply(DefineTenant(tenant, agreement={"client": tenant}))
    declaration = parse_table(record("orders", ("id", "long"), ("text", "string"), key=("id",), sinks=sinks))
    answer = platform.apply(DefineTable(tenant, "orders", declaration=declaration.to_dict()))
    if answer.result.import_id is not None:
        settle(platform, tenant, answer.result.import_id)
    now_us = time.time_ns() // 1000
    for target in declaration.targets:
        store = remote_store(platform.sink_context, DeltaRemoteSettings.of(target), tenant, "orders")
        table = LakeTable(store, spec_of(define(tenant, declaration, 1)))
        for number in range(3):
            apply_rows(table, [(1, now_us + number)])
        table.apply([], floor=now_us + 10)


def erase(client: TestClient) -> Any:
    client.delete("/v1/tenants/acme", headers=HEADERS, params={"confirm": "acme"})
    answer = client.post(
        "/v1/tenants/acme/erase", headers=HEADERS, params={"confirm": "acme", "wait": "2", "now": "true"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_no_file_of_an_erased_tenant_is_left_in_any_bucket(
    scene: tuple[AppPlatform, TestClient], s3: S3, lake: dict[str, Any]
) -> None:
    platform, client = scene
    own = bucket_settings(s3)
    fill(platform, "acme", [PLATFORMS, {"kind": "delta", "name": "own", **own}])
    fill(platform, "acme2", [PLATFORMS])
    assert sum(key.startswith("lake/acme/") for key in keys_in(s3, lake["location"])) > 5
    assert keys_in(s3, own["location"])
    receipt = erase(client)
    left = keys_in(s3, lake["location"])
    assert left
    assert all(key.startswith("lake/acme2/") for key in left)
    assert keys_in(s3, own["location"]) == []
    deleted = receipt["gone"]["remote_files"]
    assert [(one["table"], one["sink"]) for one in deleted] == [("orders", "delta"), ("orders", "own")]
    assert all(one["files"] > 5 for one in deleted)
    assert not any("earlier versions" in one for one in receipt["remains"])
    assert "env:" not in str(receipt)


def test_the_receipt_says_which_files_could_not_be_deleted(
    scene: tuple[AppPlatform, TestClient], s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, client = scene
    own = bucket_settings(s3)
    fill(platform, "acme", [{"kind": "delta", "name": "own", **own}])
    monkeypatch.delenv("MILLRACE_SECRET_TEST_SECRET")
    receipt = erase(client)
    assert receipt["gone"]["remote_files"] == []
    assert [one for one in receipt["remains"] if "earlier versions in sink 'own'" in one]
    assert keys_in(s3, own["location"])
