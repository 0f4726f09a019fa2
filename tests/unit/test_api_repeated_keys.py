"""A reused idempotency key: the same content is the same import, other content is refused, whatever was received before."""

import asyncio
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from httpx2 import Response
from sqlalchemy import select, update
from starlette.testclient import TestClient

from millrace.api.uploads.in_flight import InFlight
from millrace.client import Millrace, Problem, Submission
from millrace.declare.table import parse_table
from millrace.model.chunk import CHUNK_BYTES
from millrace.model.names import new_id
from millrace.model.ops.imports import BeginImport
from millrace.model.ops.tables import DefineTable
from millrace.model.ops.tenants import DefineTenant
from millrace.store import tables as t
from millrace.store.records import find_by_key
from millrace.upload import beginnings
from millrace.wire.client import Appended
from millrace.wire.topics import QUICK_PARTITIONS
from tests.support.platform import record
from tests.support.small_server import SmallServer
from tests.support.waiting import wait_until
from tests.support.whole_app import TOKEN, AppPlatform, served_app, whole_app

NOTES = "/v1/tenants/acme/tables/notes"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
FILE = b"id\n" + b"".join(b"%07d\n" % number for number in range(300))
OTHER_MIDDLE = FILE.replace(b"0000150", b"0990150")
LARGE = b"id\n" + b"".join(b"%07d\n" % number for number in range(3 * CHUNK_BYTES // 8))


class TakingLog:
    """Keeps what was appended, by import."""

    def __init__(self) -> None:
        self.payloads: dict[str, set[bytes]] = {}

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        self.payloads.setdefault(key.decode(), set()).add(value)
        done: Future[Appended] = Future()
        done.set_result(Appended(topic, partition, 0))
        return done


class KeyedPlatform(AppPlatform):
    appender, raw_partitions = TakingLog(), QUICK_PARTITIONS + 1

    def __init__(self, root: Path, private_targets: tuple[str, ...]) -> None:
        super().__init__(root, private_targets)
        # Nobody judges the chunks.
        self.in_flight = InFlight(10_000, self.quotas.weight)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        async with super().running() as services:
            services.health = SimpleNamespace(parts=lambda: {"kafka": "ok"}, parked_tables=list)
            yield services

    def declare(self) -> None:
        self.apply(DefineTenant("acme", agreement={}))
        for name, more in (("notes", {}), ("others", {}), ("turns", {"concurrency": "exclusive"})):
            declaration = parse_table(record(name, ("id", "long"), key=("id",), **more)).to_dict()
            self.apply(DefineTable("acme", name, declaration=declaration))

    def forget_sessions(self) -> None:
        """As a server that was started again: of an upload only what the store keeps is known."""
        for session in self.sessions._open.values():
            session.remember()
        self.sessions._open.clear()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KeyedPlatform, TestClient]]:
    with whole_app(tmp_path_factory.mktemp("keys"), KeyedPlatform) as (platform, client):
        assert isinstance(platform, KeyedPlatform)
        platform.declare()
        yield platform, client


@pytest.fixture(scope="module")
def platform(scene: tuple[KeyedPlatform, TestClient]) -> KeyedPlatform:
    return scene[0]


@pytest.fixture(scope="module")
def client(scene: tuple[KeyedPlatform, TestClient]) -> TestClient:
    return scene[1]


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:150].replace(" ", "-")


def said(digest_of: bytes) -> str:
    return f"sha-256=:{b64encode(sha256(digest_of).digest()).decode()}:"


def send(client: TestClient, key: str, body: Any = FILE, *, path: str = NOTES, **more: Any) -> Response:
    headers = {**AUTH, "Idempotency-Key": key, **more.pop("headers", {})}
    return client.post(f"{path}/imports", content=body, headers=headers, params={"file_name": "a.csv", **more})


def create(client: TestClient, key: str, length: int, body: bytes = b"", **headers: str) -> Response:
    sent = {**AUTH, "Tus-Resumable": "1.0.0", "Idempotency-Key": key, "Upload-Length": str(length)}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    if body:
        sent["Content-Type"] = "application/offset+octet-stream"
    return client.post(f"{NOTES}/uploads", content=body, headers=sent, params={"file_name": "a.csv"})


def patch(client: TestClient, place: str, offset: int, body: bytes) -> Response:
    usual = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
    return client.patch(place, content=body, headers={**AUTH, **usual})


def refused(answer: Response, *words: str) -> bool:
    told = answer.json()
    text = f"{told['detail']} {told['remedy']}"
    return (answer.status_code, told["code"]) == (409, "other_content") and all(word in text for word in words)


def state(client: TestClient, import_id: str) -> str:
    return str(client.get(f"/v1/imports/{import_id}", headers=AUTH).json()["state"])


def test_the_same_content_is_the_same_import(client: TestClient, key: str) -> None:
    first, again = send(client, key), send(client, key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert send(client, key, iter([FILE])).json()["id"] == first.json()["id"], "its length is not known before"


def test_another_name_size_or_content_is_refused_and_named(client: TestClient, key: str) -> None:
    first = send(client, key).json()["id"]
    assert refused(send(client, key, file_name="b.csv"), first, "'a.csv'", "'b.csv'", "new key")
    assert refused(send(client, key, FILE[:-8]), first, f"{len(FILE):,} bytes", f"{len(FILE) - 8:,}")
    assert refused(send(client, key, iter([FILE[:-8]])), first, f"{len(FILE) - 8:,}")
    assert refused(send(client, key, OTHER_MIDDLE), first, "content differs", sha256(OTHER_MIDDLE).hexdigest()[:12])
    assert refused(send(client, key, kind="delete"), first, "a load", "a delete")
    assert send(client, key, path=NOTES.replace("notes", "others")).json()["code"] == "key_reused"
    assert send(client, key).json()["id"] == first


def test_a_digest_is_compared_before_any_byte_is_sent(client: TestClient, key: str) -> None:
    first = send(client, key).json()["id"]
    assert refused(send(client, key, b"", headers={"Repr-Digest": said(OTHER_MIDDLE), "Content-Length": ""}), first)
    assert send(client, key, headers={"Repr-Digest": said(FILE)}).json()["id"] == first
    assert send(client, key, headers={"Repr-Digest": "sha-256=:AAAA:"}).json()["code"] == "bad_digest"
    assert send(client, key, headers={"Repr-Digest": "md5=:AAAA:"}).status_code == 202, "others are passed over"


def test_a_file_that_is_not_what_was_announced_fails(client: TestClient, key: str) -> None:
    answer = send(client, key, headers={"Repr-Digest": said(OTHER_MIDDLE)})
    assert (answer.status_code, answer.json()["code"]) == (422, "digest_differs")
    assert client.get(f"/v1/imports/{answer.json()['import']}", headers=AUTH).json()["state"] == "stopping"


def test_an_upload_cut_off_half_way_goes_on_with_the_same_file_only(client: TestClient, key: str) -> None:
    half = len(LARGE) // 2
    place = create(client, key, len(LARGE)).headers["location"]
    assert patch(client, place, 0, LARGE[:half]).status_code == 204
    other = LARGE.replace(b"0000150", b"0990150")
    assert refused(send(client, key, other), f"first {half:,} bytes")
    assert refused(send(client, key, iter([LARGE[:100]])), "100")
    assert client.head(place, headers=AUTH).headers["upload-offset"] == str(half), "the upload was not harmed"
    done = send(client, key, LARGE)
    assert done.status_code == 202
    assert place.endswith(done.json()["id"])
    assert done.json()["bytes"] == len(LARGE) - len(b"id\n")
    assert refused(send(client, key, other), "content differs")


def test_after_a_restart_another_file_does_not_go_on_in_the_place_of_the_first(
    platform: KeyedPlatform, client: TestClient, key: str
) -> None:
    half = len(FILE) // 2
    for number, body, status in ((1, FILE, 202), (2, FILE.replace(b"0000050", b"0990050"), 409)):
        place = create(client, f"{key}{number}", len(FILE)).headers["location"]
        assert patch(client, place, 0, FILE[:half]).status_code == 204
        platform.forget_sessions()
        assert send(client, f"{key}{number}", body).status_code == status
        assert state(client, place.rpartition("/")[2]) == ("processing" if status == 202 else "stopping")


def test_a_start_that_is_not_here_again_yet_is_still_compared_after_another_restart(
    platform: KeyedPlatform, client: TestClient, key: str
) -> None:
    half = len(FILE) // 2
    place = create(client, key, len(FILE)).headers["location"]
    assert patch(client, place, 0, FILE[:half]).status_code == 204
    platform.forget_sessions()
    # The file comes from its start again, and breaks off before as much is here.
    assert create(client, key, len(FILE), FILE[:100]).status_code == 201
    platform.forget_sessions()
    assert refused(send(client, key, FILE.replace(b"0000050", b"0990050")), f"first {half:,} bytes")


def test_requests_that_go_on_at_the_same_time_share_an_upload(
    platform: KeyedPlatform, client: TestClient, key: str
) -> None:
    place = create(client, key, len(FILE)).headers["location"]
    assert patch(client, place, 0, FILE[:100]).status_code == 204
    platform.forget_sessions()

    async def resume() -> tuple[Any, Any]:
        import_id = place.rpartition("/")[2]
        first, second = await asyncio.gather(*(platform.sessions.resume(import_id) for _ in range(2)))
        return first, second

    assert client.portal is not None
    first, second = client.portal.call(resume)
    assert first is second


def test_an_upload_that_begins_again_is_busy_for_others(platform: KeyedPlatform, client: TestClient, key: str) -> None:
    """The request that waited for a broken one sends the file from its start."""
    place = create(client, key, len(FILE)).headers["location"]
    assert patch(client, place, 0, FILE[:100]).status_code == 204

    async def begin_again() -> bool:
        broken = await platform.sessions.resume(place.rpartition("/")[2])
        async with broken.busy:
            broken.is_broken = True
            await platform.sessions.from_start(broken)
            others = await platform.sessions.resume(place.rpartition("/")[2])
            return others is not broken and others.busy.locked()

    assert client.portal is not None
    assert client.portal.call(begin_again)


def test_a_refused_file_does_not_say_which_digest_the_first_has(client: TestClient, key: str) -> None:
    half, other = len(FILE) // 2, FILE.replace(b"0000050", b"0990050")
    place = create(client, key, len(FILE)).headers["location"]
    assert patch(client, place, 0, FILE[:half]).status_code == 204
    assert refused(send(client, key, other, headers={"Repr-Digest": said(other)}), f"first {half:,} bytes")
    assert patch(client, place, half, FILE[half:]).status_code == 204
    assert state(client, place.rpartition("/")[2]) == "processing"


def test_a_resumable_upload_that_is_whole_wants_a_digest(client: TestClient, key: str) -> None:
    place = create(client, key, len(FILE), FILE).headers["location"]
    unproven = create(client, key, len(FILE))
    assert (unproven.status_code, unproven.json()["code"]) == (409, "digest_wanted")
    same = create(client, key, len(FILE), Repr_Digest=said(FILE))
    assert (same.headers["location"], same.headers["upload-offset"]) == (place, str(len(FILE)))
    assert create(client, key, len(FILE), FILE).headers["location"] == place, "its bytes came with it"
    assert refused(create(client, key, len(FILE), OTHER_MIDDLE), "content differs")
    assert refused(create(client, key, len(FILE), Repr_Digest=said(OTHER_MIDDLE)), "content differs")
    assert refused(create(client, key, len(FILE) + 1), "bytes")


def test_a_resumable_upload_under_way_tells_the_digest_of_what_is_there(client: TestClient, key: str) -> None:
    place = create(client, key, len(FILE)).headers["location"]
    patch(client, place, 0, FILE[:500])
    told = create(client, key, len(FILE))
    assert (told.headers["upload-offset"], told.headers["upload-digest"]) == ("500", said(FILE[:500]))
    assert create(client, key, len(FILE), Repr_Digest=said(OTHER_MIDDLE)).status_code == 201
    mixed = patch(client, place, 500, FILE[500:])
    assert mixed.json()["code"] == "digest_differs", "parts of two files are no success"


def test_an_import_of_an_earlier_release_is_recognised_by_its_name(
    platform: KeyedPlatform, client: TestClient, key: str
) -> None:
    first = send(client, key).json()["id"]
    with platform.store.write() as connection:
        options = connection.execute(select(t.imports.c.options).where(t.imports.c.id == first)).scalar_one()
        del options["content"]
        connection.execute(update(t.imports).where(t.imports.c.id == first).values(options=options))
    assert send(client, key).json()["id"] == first
    assert create(client, key, len(FILE)).headers["location"].endswith(first)
    assert refused(send(client, key, file_name="b.csv"), first)


def test_a_file_that_waits_its_turn_is_not_taken_for_another(platform: KeyedPlatform) -> None:
    """The table is exclusive, and its definition is still on its way to the sinks."""
    begun = platform.apply(begin_op("turns", "second", 100))
    assert begun.is_waiting
    again = platform.apply(begin_op("turns", "second", 101))
    assert again.refusal is not None
    assert again.refusal.code == "other_content"
    assert platform.apply(begin_op("turns", "second", 100)).is_waiting


def begin_op(table: str, key: str, length: int) -> BeginImport:
    return BeginImport("acme", table, id=new_id("imp"), idempotency_key=key, length=length)


def test_requests_that_begin_no_import_do_not_wait_for_each_other(
    server: SmallServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "YOUNG_SECONDS", 3600.0)
    monkeypatch.setattr(beginnings, "PRESENT_SECONDS", 3600.0)
    server.apply(DefineTenant("calm", agreement={}))
    absent = f"{server.url}/v1/tenants/{{}}/tables/absent/imports"
    assert httpx2.post(absent.format("calm"), content=FILE, headers=AUTH, timeout=20).status_code == 404
    for _ in range(beginnings.MOST_YOUNG):
        assert post(server, key, FILE).status_code == 202
        assert httpx2.post(absent.format("acme"), content=FILE, headers=AUTH, timeout=20).status_code == 404


def test_rows_with_a_key_that_differ_are_refused(client: TestClient, key: str) -> None:
    def rows(body: bytes) -> Response:
        return client.post(f"{NOTES}/rows", content=body, headers={**AUTH, "Idempotency-Key": key})

    assert rows(b'{"id": 1}\n{"id": 2}').status_code == 202
    assert rows(b'{"id": 1}\n{"id": 2}\n').json() == {"rows": 2, "repeated": True}
    assert refused(rows(b'{"id": 1}\n{"id": 3}'), "content differs")
    assert refused(rows(b'{"id": 1}'), "2 rows then, 1 now")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with served_app(tmp_path_factory.mktemp("served"), kind=KeyedPlatform) as running:
        assert isinstance(running.platform, KeyedPlatform)
        running.platform.declare()
        yield running


class SlowBody:
    """A body whose second part is sent when `go_on` is set."""

    def __init__(self, *parts: bytes) -> None:
        self.parts, self.has_begun, self.go_on = parts, Event(), Event()

    def __iter__(self) -> Iterator[bytes]:
        first, *others = self.parts
        yield first
        self.has_begun.set()
        assert self.go_on.wait(20)
        yield from others


def post(server: SmallServer, key: str, body: Any, digest_of: bytes | None = None, file_type: str = "csv") -> Response:
    headers = {**AUTH, "Idempotency-Key": key, **({} if digest_of is None else {"Repr-Digest": said(digest_of)})}
    return httpx2.post(f"{server.url}{NOTES}/imports?format={file_type}", content=body, headers=headers, timeout=30)


def test_another_file_that_comes_meanwhile_does_not_harm_the_first(server: SmallServer, key: str) -> None:
    body = SlowBody(FILE[:500], FILE[500:])
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, server, key, body)
        assert body.has_begun.wait(20)
        wait_until(lambda: find_key(server, key), 20, "the first import to begin")
        second = threads.submit(post, server, key, iter([OTHER_MIDDLE]), OTHER_MIDDLE)
        time.sleep(0.2)
        body.go_on.set()
        assert first.result().status_code == 202, first.result().text
        assert refused(second.result(), "content differs")


def test_a_file_that_comes_while_an_empty_one_ends_adds_nothing(server: SmallServer, key: str) -> None:
    body = SlowBody(b"", b"")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, server, key, body, file_type="jsonl")
        wait_until(lambda: find_key(server, key), 20, "the first import to begin")
        second = threads.submit(post, server, key, iter([b'{"id": 1}\n']), file_type="jsonl")
        time.sleep(0.2)
        body.go_on.set()
        assert [first.result().status_code, second.result().status_code] == [202, 409]


def find_key(server: SmallServer, key: str) -> bool:
    with server.platform.store.read() as connection:
        return find_by_key(connection, "acme", key) is not None


def test_files_that_come_at_the_same_time_are_never_mixed(server: SmallServer, key: str) -> None:
    """Each round lets several requests with one key begin at once."""
    for number in range(10):
        with ThreadPoolExecutor(4) as threads:
            bodies = [FILE, OTHER_MIDDLE] * 2
            answers = list(threads.map(lambda body: post(server, f"{key}{number}", body), bodies))  # noqa: B023
        taken = {sha256(body).hexdigest() for body, one in zip(bodies, answers, strict=True) if one.status_code == 202}
        assert len(taken) == 1, [one.text for one in answers]
        assert all(one.status_code == 202 or refused(one) for one in answers)
        import_id = next(one.json()["id"] for one in answers if one.status_code == 202)
        assert isinstance(server.platform, KeyedPlatform)
        sent = server.platform.appender.payloads[import_id]
        assert len(sent) == 1, "chunks of two files reached the log"


@pytest.mark.parametrize("body", [FILE, LARGE], ids=["whole", "resumable"])
def test_the_sdk_refuses_another_file_and_finds_the_same(
    server: SmallServer, tmp_path: Path, key: str, body: bytes
) -> None:
    path, submission = tmp_path / "a.csv", Submission("acme", "notes", idempotency_key=key)
    path.write_bytes(body)
    with Millrace(server.url, TOKEN) as platform:
        first = platform.imports.send_file(path, submission)
        assert platform.imports.send_file(path, submission)["id"] == first["id"]
        path.write_bytes(body.replace(b"0000150", b"0990150"))
        with pytest.raises(Problem) as other:
            platform.imports.send_file(path, submission)
    assert (other.value.status, other.value.code) == (409, "other_content")


def test_the_sdk_does_not_go_on_in_the_place_of_another_file(server: SmallServer, tmp_path: Path, key: str) -> None:
    path, submission = tmp_path / "a.csv", Submission("acme", "notes", idempotency_key=key)
    path.write_bytes(LARGE)
    with Millrace(server.url, TOKEN) as platform:
        begun = platform.imports.begin_upload(path, submission)
        headers = {**AUTH, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
        httpx2.patch(f"{server.url}/v1/uploads/{begun.import_id}", content=LARGE[: 1 << 20], headers=headers)
        path.write_bytes(LARGE.replace(b"0000150", b"0990150"))
        with pytest.raises(Problem, match="first 1,048,576 bytes"):
            platform.imports.begin_upload(path, submission)
        path.write_bytes(LARGE)
        assert platform.imports.begin_upload(path, submission).send()["id"] == begun.import_id


def test_the_command_exits_1_and_says_what_differs(server: SmallServer, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def run(body: bytes) -> "subprocess.CompletedProcess[str]":
        path.write_bytes(body)
        command = ["import", "acme/notes", str(path), "--idempotency-key", "night", "--no-wait", "--json"]
        home = str(server.platform.home.root)
        return subprocess.run(
            [sys.executable, "-m", "millrace.cli.main", *command],
            env={"MILLRACE_HOME": home, "PATH": "", "HOME": home},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    first = run(FILE)
    assert first.returncode == 0, first.stderr
    import_id = json.loads(first.stdout)["id"]
    assert json.loads(run(FILE).stdout)["id"] == import_id
    other = run(OTHER_MIDDLE)
    assert other.returncode == 1
    assert import_id in other.stderr
    assert "content differs" in other.stderr
