"""Uploads by tus and by a form, as their clients meet them: the whole application, and a log that takes everything."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from millrace.control.entities import forget_facts
from millrace.declare.table import parse_table
from millrace.model.imports import Counts
from millrace.model.ops.imports import SettleImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.wire.client import Appended
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.platform import record
from tests.support.whole_app import TOKEN, AppPlatform, whole_app

UPLOADS = "/v1/tenants/acme/tables/notes/uploads"
FILE = b"id\n1\n2\n"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


class TakingLog:
    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class ReceivingPlatform(AppPlatform):
    appender, raw_partitions = TakingLog(), QUICK_PARTITIONS + 1


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AppPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("tus"), ReceivingPlatform) as (platform, client):
        platform.apply(DefineTenant("acme", agreement={}))
        declaration = parse_table(record("notes", ("id", "long"), key=("id",))).to_dict()
        platform.apply(DefineTable("acme", "notes", declaration=declaration))
        yield platform, client


@pytest.fixture(scope="module")
def platform(scene: tuple[AppPlatform, TestClient]) -> AppPlatform:
    return scene[0]


@pytest.fixture(scope="module")
def client(scene: tuple[AppPlatform, TestClient]) -> TestClient:
    return scene[1]


def create(client: TestClient, **headers: str) -> Response:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(UPLOADS, headers={**AUTH, "Tus-Resumable": "1.0.0", **said})


def patch(client: TestClient, place: str, offset: int, body: bytes, **headers: str) -> Response:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
    return client.patch(place, content=body, headers={**AUTH, **usual, **said})


def progress(client: TestClient, place: str) -> tuple[str, str, str]:
    told = client.head(place, headers=AUTH)
    assert told.status_code == 200
    return told.headers["upload-offset"], told.headers["upload-length"], told.headers["cache-control"]


def state(client: TestClient, place: str) -> str:
    return str(client.get(place.replace("uploads", "imports"), headers=AUTH).json()["state"])


def test_an_empty_file_is_whole_when_it_is_created(client: TestClient) -> None:
    said = {**AUTH, "Tus-Resumable": "1.0.0", "Upload-Length": "0"}
    created = client.post(f"{UPLOADS}?header=false", headers=said)
    assert created.status_code == 201
    assert state(client, created.headers["location"]) == "processing"
    refused = create(client, Upload_Length="0")
    assert (refused.status_code, refused.json()["code"]) == (422, "no_header")


def test_an_upload_is_told_to_be_at_its_end_as_long_as_its_import_is_known(
    platform: AppPlatform, client: TestClient
) -> None:
    place = create(client, Upload_Length=str(len(FILE))).headers["location"]
    assert patch(client, place, 0, FILE[:4]).headers["upload-offset"] == "4"
    assert progress(client, place) == ("4", "7", "no-store")
    assert patch(client, place, 4, FILE[4:]).status_code == 204
    assert progress(client, place) == ("7", "7", "no-store")
    counts = Counts(chunks=1, read=2, accepted=2)
    settled = {"counts": counts, "durable": {"delta": 1}, "failure": None}
    import_id = place.rsplit("/", 1)[1]
    platform.apply(SettleImport("acme", import_id, **settled))
    with platform.store.write() as connection:
        forget_facts(connection, [import_id])
    assert state(client, place) == "completed"
    assert progress(client, place) == ("7", "7", "no-store")


def test_an_upload_that_was_given_up_is_gone(client: TestClient) -> None:
    place = create(client, Upload_Length="7").headers["location"]
    assert client.delete(place, headers=AUTH).status_code == 204
    assert client.head(place, headers=AUTH).status_code == 410


def test_a_length_may_come_later(client: TestClient) -> None:
    created = create(client, Upload_Defer_Length="1")
    place = created.headers["location"]
    assert client.head(place, headers=AUTH).headers["upload-defer-length"] == "1"
    assert patch(client, place, 0, FILE, Upload_Length="7").headers["upload-length"] == "7"
    assert progress(client, place) == ("7", "7", "no-store")


def test_refusals_are_those_of_the_protocol_and_name_its_version(client: TestClient) -> None:
    place = create(client, Upload_Length="7").headers["location"]
    refused = {
        "other_version": create(client, Upload_Length="7", Tus_Resumable="0.2.2"),
        "content_type": patch(client, place, 0, FILE, Content_Type="text/csv"),
        "offset": patch(client, place, 3, FILE),
        "too_large": patch(client, place, 0, FILE * 2),
        "no_import": client.patch("/v1/uploads/imp_none", headers={**AUTH, "Upload-Offset": "0"}),
        "unauthorised": client.post(UPLOADS),
        "invalid": client.patch(place, headers=AUTH),
    }
    assert {answer.json()["code"]: answer.status_code for answer in refused.values()} == {
        "other_version": 412, "content_type": 415, "offset": 409, "too_large": 413, "no_import": 404,
        "unauthorised": 401, "invalid": 422,
    }  # fmt: skip
    assert {answer.headers["tus-resumable"] for answer in refused.values()} == {"1.0.0"}
    assert refused["other_version"].headers["tus-version"] == "1.0.0"
    assert patch(client, place, 0, FILE).status_code == 204, "nothing of what was refused has arrived"


@pytest.mark.parametrize(("token", "status"), [("mr_guessed", 401), (TOKEN, 404)])
def test_nobody_reads_a_form_before_its_sender_and_tenant_are_known(
    client: TestClient, token: str, status: int
) -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("the form is read")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {"type": "http", "method": "POST", "path": "/upload-file/ghost", "query_string": b"", "headers": headers}
    assert client.portal is not None
    client.portal.call(client.app, scope, receive, send)
    assert sent[0]["status"] == status


def test_a_form_is_imported_unless_it_is_larger_than_any_file_may_be(platform: AppPlatform, client: TestClient) -> None:
    platform.apply(DefineTenant("small", agreement={}))
    declaration = parse_table(record("notes", ("id", "long"), max_file_size_mb=0.001)).to_dict()
    platform.apply(DefineTable("small", "notes", declaration=declaration))
    taken = client.post("/upload-file/small", files={"file": ("n.csv", FILE)}, data={"table": "notes"}, headers=AUTH)
    assert (taken.status_code, taken.json()["state"], taken.json()["file_name"]) == (202, "processing", "n.csv")
    empty = client.post("/upload-file/small", data={"table": "notes"}, headers=AUTH)
    assert (empty.status_code, empty.json()["code"]) == (422, "invalid")
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="n.csv"\r\n\r\n' + FILE * 20_000 + b"\r\n--x--"
    )
    typed = {**AUTH, "Content-Type": "multipart/form-data; boundary=x"}
    for content in (form, iter([form[:9], form[9:]])):
        refused = client.post("/upload-file/small", content=content, headers=typed)
        assert (refused.status_code, refused.json()["detail"][:8]) == (413, "The form")


def test_a_tenant_that_is_not_there_is_missing_for_the_operator_too(client: TestClient) -> None:
    answers = client.get("/tenant/ghost", headers=AUTH), client.post("/upload-file/ghost", headers=AUTH)
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, "no_tenant")] * 2
    assert client.get("/tenant/acme", headers=AUTH).status_code == 200


def test_the_form_is_described(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"]["/upload-file/{tenant_id}"]["post"]["requestBody"]
    assert described["content"]["multipart/form-data"]["schema"]["properties"].keys() == {"file", "table", "app"}


def failed(client: TestClient) -> list[str]:
    listed = client.get("/v1/imports", headers=AUTH).json()["items"]
    return [one["error"]["message"] for one in listed if one["error"]]


def test_how_a_file_is_said_to_be_written_is_refused_together_with_its_import(client: TestClient) -> None:
    refused = client.post(f"{UPLOADS.replace('uploads', 'imports')}?delimiter=%22", content=FILE, headers=AUTH)
    assert refused.status_code == 422
    assert "Delimiter and quote" in refused.json()["detail"]
    assert any("Delimiter and quote" in message for message in failed(client))


def test_a_file_that_no_reader_understands_fails_instead_of_being_asked_for_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise KeyError("a footer that lies")

    monkeypatch.setattr("millrace.formats.text_cut.TextCutter.feed", stumble)
    refused = client.post(UPLOADS.replace("uploads", "imports"), content=FILE, headers=AUTH)
    assert refused.status_code == 422
    assert "a footer that lies" in refused.json()["detail"]
    assert any("a footer that lies" in message for message in failed(client))


def test_lines_that_repeat_the_header_are_no_rows_and_are_shown(client: TestClient) -> None:
    text = b"id\n1\nid\n2\n\xef\xbb\xbfid\nid\n"
    place = create(client, Upload_Length=str(len(text))).headers["location"]
    assert patch(client, place, 0, text).status_code == 204
    shown = client.get(place.replace("uploads", "imports"), headers=AUTH).json()
    assert shown["repeated_headers"] == 3
    events = client.get("/v1/events", params={"tenant": "acme", "limit": 500}, headers=AUTH).json()["items"]
    (received,) = [one["data"] for one in events if one["type"].endswith("import.received") and shown["id"] in str(one)]
    assert (received["rows"], received["repeated_headers"]) == (2, 3)
