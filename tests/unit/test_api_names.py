"""A name that the platform does not know is refused by name, with the nearest one: in the address, in bodies, in the metadata
of uploads and in documents. A typo never passes in silence."""

import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.model.ops.tenants import DefineTenant
from tests.support.platform import record
from tests.support.receiving import TakingPlatform
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
NOTES = "/v1/tenants/acme/tables/notes"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path, TakingPlatform) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        document = {**record("notes", ("id", "long"), key=("id",)), "csv": {"header": True}}
        made = client.put(NOTES, json=document, headers=HEADERS)
        assert made.status_code == 200, made.text
        yield platform, client


@pytest.fixture
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def refused(answer: Any, *words: str) -> None:
    problem = answer.json()
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in f"{problem['detail']} {problem['remedy']}"


@pytest.mark.parametrize(
    ("method", "path", "typo", "meant"),
    [
        ("POST", f"{NOTES}/imports", "delimeter", "delimiter"),
        ("POST", f"{NOTES}/uploads", "encodng", "encoding"),
        ("GET", "/v1/imports", "tennant", "tenant"),
        ("GET", "/v1/events", "afer", "after"),
        ("GET", "/v1/audit", "limits", "limit"),
        ("PUT", NOTES, "strickt", "strict"),
        ("GET", "/v1/tenants/acme/spans", "prefx", "prefix"),
    ],
)
def test_an_unknown_query_parameter_is_refused(
    client: TestClient, method: str, path: str, typo: str, meant: str
) -> None:
    answer = client.request(method, f"{path}?{typo}=x", headers={**HEADERS, "Upload-Length": "3"}, content=b"id\n")
    refused(answer, f"Unknown query parameter {typo!r}.", f"Did you mean {meant!r}?")
    assert answer.json()["code"] == "unknown_name"


def test_an_unknown_state_or_kind_of_imports_is_refused(client: TestClient) -> None:
    refused(client.get("/v1/imports?state=complete", headers=HEADERS), "'complete'", "Did you mean 'completed'?")
    refused(client.get("/v1/imports?kind=amendment", headers=HEADERS), "'amendment'", "amend")
    for known in ("state=requested", "state=stalled", "state=held", "kind=alter"):
        assert client.get(f"/v1/imports?{known}", headers=HEADERS).status_code == 200


def test_a_declaration_that_is_nested_without_end_is_refused(client: TestClient) -> None:
    deep = b'{"schema":' + b'{"type":' * 20_000 + b'"x"' + b"}" * 20_001
    headers = {**HEADERS, "Millrace-Declaration": b64encode(zlib.compress(deep)).decode()}
    refused(client.post(f"{NOTES}/validate", content=b"id\n1\n", headers=headers), "Millrace-Declaration")


def test_moments_beyond_the_calendar_are_moments(client: TestClient) -> None:
    for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"):
        for method, path in (("POST", f"{NOTES}/validate"), ("GET", "/v1/events")):
            answer = client.request(method, path, params={"since": moment}, headers=HEADERS)
            assert answer.status_code == 200, answer.text


def test_a_stranger_does_not_learn_the_names(client: TestClient) -> None:
    assert client.get("/v1/imports?tennant=x").status_code == 401


def test_a_public_page_takes_any(client: TestClient) -> None:
    assert client.get("/metrics?_=1").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "meant"),
    [
        ("POST", "/v1/query", {"sql": "select 1", "max_row": 3}, "max_rows"),
        ("POST", "/v1/tenants/acme/spans/night", {"lease_second": 3}, "lease_seconds"),
        ("POST", "/v1/tokens", {"name": "a", "roles": "viewer"}, "role"),
        ("POST", "/v1/tenants/acme/subscriptions", {"name": "a", "url": "https://a.example", "type": ["*"]}, "types"),
        ("PATCH", "/v1/tenants/acme/subscriptions/a", {"enable": True}, "enabled"),
    ],
)
def test_an_unknown_field_of_a_body_is_refused(
    client: TestClient, method: str, path: str, body: dict[str, Any], meant: str
) -> None:
    refused(client.request(method, path, json=body, headers=HEADERS), "Unknown field", f"Did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"primary_keys": ["id"]}, ("'primary_keys'", "'primary_key'")),
        ({"csv": {"delimeter": ";"}}, ("'delimeter'", "'delimiter'")),
        ({"sinks": [{"kind": "postgres", "hots": "127.0.0.1"}]}, ("'hots'", "'host'")),
    ],
)
def test_an_unknown_field_of_a_document_is_refused(
    client: TestClient, document: dict[str, Any], words: tuple[str, ...]
) -> None:
    whole = {**record("notes", ("id", "long"), key=("id",)), **document}
    refused(client.put(f"{NOTES}?check=false", json=whole, headers=HEADERS), *words)


def upload(client: TestClient, metadata: str, query: str = "") -> Any:
    headers = {**HEADERS, "Upload-Length": "5", "Upload-Metadata": metadata, "Tus-Resumable": "1.0.0"}
    return client.post(f"{NOTES}/uploads{query}", headers=headers)


def pair(key: str, value: str) -> str:
    return f"{key} {b64encode(value.encode()).decode()}"


@pytest.mark.parametrize("key", ["filename", "name", "file_name"])
def test_the_metadata_of_a_tus_client_names_the_file(client: TestClient, key: str) -> None:
    sent = f"{pair(key, 'größe.csv')},{pair('filetype', 'text/csv')},relativePath"
    made = upload(client, sent)
    assert made.status_code == 201, made.text
    document = client.get(f"/v1/imports/{made.headers['location'].rpartition('/')[2]}", headers=HEADERS).json()
    assert document["file_name"] == "größe.csv"


def test_the_address_names_the_file_before_the_metadata_do(client: TestClient) -> None:
    made = upload(client, pair("filename", "a.csv"), "?file_name=b.csv")
    document = client.get(f"/v1/imports/{made.headers['location'].rpartition('/')[2]}", headers=HEADERS).json()
    assert document["file_name"] == "b.csv"


def test_unknown_metadata_is_refused(client: TestClient) -> None:
    refused(upload(client, pair("filname", "a.csv")), "'filname'", "Did you mean 'filename'?")
    refused(upload(client, pair("delimiter", ";")), "'delimiter'", "?delimiter=")
    refused(upload(client, "filename ***"), "'filename'", "base64")


@pytest.mark.parametrize("body", [b"", b"\xef\xbb\xbf", b"\n\r\n"])
def test_a_file_without_its_header_fails(client: TestClient, body: bytes) -> None:
    answer = client.post(f"{NOTES}/imports", content=body, headers=HEADERS)
    assert (answer.status_code, answer.json()["code"]) == (422, "no_header"), answer.text
    assert "header" in answer.json()["detail"]
    document = client.get(f"/v1/imports/{answer.json()['import']}", headers=HEADERS).json()
    assert (document["state"], document["error"]["code"]) == ("stopping", "no_header")


def test_an_empty_file_without_a_header_is_an_import_without_rows(client: TestClient) -> None:
    answer = client.post(f"{NOTES}/imports?header=false", content=b"", headers=HEADERS)
    assert answer.status_code == 202, answer.text
