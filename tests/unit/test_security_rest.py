"""Small holes, each closed where an attacker would meet it: the REST API of the whole application."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.api.uploads import forms
from millrace.model.ops.tenants import DefineTenant
from millrace.sink.cassandra.ddl import text_literal
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SCHEMA = {"type": "record", "name": "notes", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path, AppPlatform, "127.0.0.0/8") as (platform, client):
        for tenant in ("acme", "millrace"):
            platform.apply(DefineTenant(tenant, agreement={}))
        yield platform, client


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def declare(client: TestClient, sink: dict[str, Any], tenant: str = "acme") -> Any:
    document = {"schema": SCHEMA, "primary_key": ["id"], "sinks": ["delta", sink]}
    return client.put(f"/v1/tenants/{tenant}/tables/notes?check=false", json=document, headers=HEADERS)


@pytest.mark.parametrize(
    "replication",
    [
        {"class": "SimpleStrategy'} AND durable_writes = false; DROP KEYSPACE other; --"},
        {"class": "NetworkTopologyStrategy", "dc1': '3'} ; --": 3},
        {"class": "SimpleStrategy", "replication_factor": {"a": 1}},
    ],
)
def test_a_replication_is_words_and_numbers(client: TestClient, replication: dict[str, Any]) -> None:
    refused = declare(client, {"kind": "cassandra", "hosts": ["127.0.0.1"], "replication": replication})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_sink"), refused.text
    good = {"class": "NetworkTopologyStrategy", "dc1": 3, "dc-2": "2"}
    assert declare(client, {"kind": "cassandra", "hosts": ["127.0.0.1"], "replication": good}).status_code == 200


def test_a_text_in_cql_ends_where_it_ends() -> None:
    assert text_literal("it's'; --") == "'it''s''; --'"
    assert text_literal(3) == "'3'"


def test_a_tenant_s_topics_never_meet_the_platform_s(client: TestClient) -> None:
    kafka = {"kind": "kafka", "hosts": ["127.0.0.1"], "topic": "table-ops"}
    refused = declare(client, kafka, tenant="millrace")
    assert (refused.status_code, refused.json()["code"]) == (422, "reserved_topic"), refused.text
    assert declare(client, kafka).status_code == 200


def test_the_page_of_endpoints_needs_nothing_from_elsewhere(client: TestClient) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200
    page = answer.text
    for shown in ("POST /v1/query", "max_rows", "PUT /v1/tenants/{tenant}/tables/{table}", "operator"):
        assert shown in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page)
    assert "<script" not in page
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert client.get("/redoc").status_code == 404


def test_the_file_of_a_form_waits_on_the_home_s_disk(
    scene: tuple[AppPlatform, TestClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own folder for temporary files may be small: here it takes nothing at all."""
    platform, client = scene
    agreement = {"app": {"command": ["true"], "mode": "stream", "uploads_first": True}}
    assert client.put("/v1/tenants/acme", json=agreement, headers=HEADERS).status_code == 200
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(small / "gone"))
    monkeypatch.setattr(forms._SpoolingParser, "spool_max_size", 1000)
    sent = {"file": ("big.csv", b"x" * 100_000)}
    answer = client.post("/upload-file/acme", headers=HEADERS, files=sent)
    assert answer.status_code == 202, answer.text
    assert answer.json()["bytes"] == 100_000
    assert list(platform.home.staging.iterdir()) == [], "nothing stays behind"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"file=x", "application/x-www-form-urlencoded"),
        (b"--x\r\nno form", "multipart/form-data; boundary=x"),
        (b"", None),
    ],
)
def test_what_is_no_form_is_refused_in_words(client: TestClient, body: bytes, kind: str | None) -> None:
    client.put("/v1/tenants/acme/tables/notes", json={"schema": SCHEMA, "primary_key": ["id"]}, headers=HEADERS)
    headers = HEADERS if kind is None else {**HEADERS, "Content-Type": kind}
    answer = client.post("/upload-file/acme", headers=headers, content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
