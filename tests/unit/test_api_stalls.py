"""Nothing blocks the event loop while the API does real work, and a stall of the loop shows in a metric.

How long the loop stalls on a busy machine is measured by `make bench-tenants BENCH=stall`."""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from millrace.api import stalls
from millrace.api.stalls import SLOT_SECONDS, SLOTS, StallWatch
from millrace.auth import quotas
from millrace.model.frames import pack_frame
from millrace.observe import gauge
from millrace.upload import flight
from tests.support.blocking import blocking_calls
from tests.support.followers import EventFollower
from tests.support.platform import record
from tests.support.receiving import TakingPlatform
from tests.support.small_server import SmallServer
from tests.support.whole_app import TOKEN, served_app

NOTES = "/v1/tenants/acme/tables/notes"
CSV = b"id\n" + b"".join(b"%d\n" % number for number in range(50_000))


class Caller:
    """Asks as the operator, over real connections."""

    def __init__(self, server: SmallServer, tmp_path: Path) -> None:
        self.server = server
        self.folder = tmp_path
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False)

    def ask(self, method: str, path: str, expected: int = 200, **more: Any) -> httpx2.Response:
        answer = self.http.request(method, path, **more)
        assert answer.status_code == expected, f"{method} {path}: {answer.text}"
        return answer


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    with served_app(tmp_path / "home", kind=TakingPlatform) as server:
        made = Caller(server, tmp_path)
        made.ask("PUT", "/v1/tenants/acme", json={})
        made.ask("PUT", NOTES, json=record("notes", ("id", "long"), key=("id",)))
        yield made
        made.http.close()


def declaring(caller: Caller) -> None:
    caller.ask("PUT", "/v1/tenants/new", json={"client": "new", "quotas": {"rows_per_day": 5}})
    wider = record("notes", ("id", "long"), ("more", ["null", "string"]), key=("id",))
    caller.ask("POST", f"{NOTES}/diff", json=wider)
    caller.ask("PUT", NOTES, json=wider)
    for path in ("/v1/tenants", "/v1/tenants/acme", "/v1/tenants/acme/tables", NOTES, f"{NOTES}/revisions"):
        caller.ask("GET", path)
    caller.ask("GET", "/v1/tenants/acme/export")
    caller.ask("DELETE", "/v1/tenants/new?confirm=new")
    caller.ask("POST", "/v1/tenants/new/erase?confirm=new&now=true")


def uploading(caller: Caller) -> None:
    begun = caller.ask("POST", f"{NOTES}/imports?format=csv", 202, content=CSV).json()["id"]
    caller.ask("POST", f"{NOTES}/imports?format=csv&compression=gzip", 202, content=gzip.compress(CSV))
    caller.ask("POST", "/upload-file/acme", 202, files={"file": ("notes.csv", b"id\n" * 900_000)})
    tus = {"Tus-Resumable": "1.0.0"}
    made = caller.ask("POST", f"{NOTES}/uploads?format=csv", 201, headers={**tus, "Upload-Length": "7"})
    caller.ask("HEAD", made.headers["Location"], headers=tus)
    part = {**tus, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
    caller.ask("PATCH", made.headers["Location"], 204, headers=part, content=b"id\n3\n4\n")
    caller.ask("GET", f"/v1/imports/{begun}?wait=0.1")
    for path in ("", "/errors", "/errors/reasons", "/errors/export"):
        caller.ask("GET", f"/v1/imports/{begun}{path}")
    caller.ask("POST", f"/v1/imports/{begun}/cancel")
    caller.ask("GET", "/v1/tenants/acme/usage")


def throttled(caller: Caller) -> None:
    """Two tenants whose bytes are read slowly, for longer than what is known of them counts."""
    for tenant in ("slow", "slower"):
        caller.ask("PUT", f"/v1/tenants/{tenant}", json={"quotas": {"bytes_per_second": 20_000}})
        caller.ask("PUT", f"/v1/tenants/{tenant}/tables/notes", json=record("notes", ("id", "long"), key=("id",)))
    sending = [
        threading.Thread(
            target=caller.ask,
            args=("POST", f"/v1/tenants/{tenant}/tables/notes/imports?format=csv", 202),
            kwargs={"content": (piece for piece in (CSV[:20_000], b"1\n" * 5_000, b"2\n" * 1000))},
        )
        for tenant in ("slow", "slower")
    ]
    for one in sending:
        one.start()
    for one in sending:
        one.join(30)
    caller.ask("GET", "/v1/tenants/slow/usage")


def streaming(caller: Caller) -> None:
    caller.ask("POST", f"{NOTES}/rows", 202, content=b'{"id": 1}\n')
    caller.ask("POST", f"{NOTES}/rows", 202, content=b'{"id": 2}\n', headers={"Idempotency-Key": "k"})
    url = f"ws{caller.server.url.removeprefix('http')}{NOTES}/stream"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
        assert json.loads(socket.recv(timeout=20))["type"] == "ready"
        socket.send(pack_frame(1, b'{"id": 3}\n'))
        assert json.loads(socket.recv(timeout=20))["type"] == "ack"


def following(caller: Caller) -> None:
    follower = EventFollower(caller.server.url, TOKEN)
    caller.ask("POST", "/v1/tenants/acme/spans/night", 201)
    follower.read_until(b'"night"')
    follower.close()
    caller.ask("GET", "/v1/tenants/acme/spans/night?wait=0.1")
    caller.ask("POST", "/v1/tenants/acme/spans/night/touch")
    caller.ask("POST", "/v1/tenants/acme/spans/night/end")
    caller.ask("GET", "/v1/tenants/acme/spans")
    caller.ask("GET", "/v1/events")


def asking(caller: Caller) -> None:
    answer = caller.http.post("/v1/query", json={"sql": "select count(*) from acme.notes"})
    assert answer.status_code < 500, answer.text
    caller.ask("POST", f"{NOTES}/validate?format=csv", content=b"id\n1\nx\n")


def managing(caller: Caller) -> None:
    made = caller.ask("POST", "/v1/tokens", 201, json={"name": "t", "tenant": "acme"}).json()["token"]
    caller.ask("GET", "/v1/tenants/acme", headers={"Authorization": f"Bearer {made}"})
    caller.ask("GET", "/v1/tokens")
    caller.ask("DELETE", "/v1/tokens/t?tenant=acme")
    hooks, hook = "/v1/tenants/acme/subscriptions", {"name": "h", "url": "https://1.1.1.1/"}
    caller.ask("POST", hooks, 201, json=hook)
    caller.ask("PATCH", f"{hooks}/h", json={"enabled": False})
    caller.ask("POST", f"{hooks}/h/rotate")
    caller.ask("GET", hooks)
    caller.ask("DELETE", f"{hooks}/h", 204)
    for path in ("/v1/audit", "/metrics", "/v1/apps", "/v1/usage?day=2026-11-16", f"{NOTES}/sinks", "/openapi.json"):
        caller.ask("GET", path)


@pytest.mark.parametrize(
    "work", [declaring, uploading, throttled, streaming, following, asking, managing], ids=lambda work: work.__name__
)
def test_no_work_waits_for_disk_or_database_in_the_event_loop(
    caller: Caller, work: Callable[[Caller], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is known of tenants is old after a moment, and every chunk looks at its tenant's share.
    monkeypatch.setattr(quotas, "KNOWN_SECONDS", 0.1)
    monkeypatch.setattr(quotas, "SOON_SECONDS", 0.05)
    monkeypatch.setattr(flight, "LEAST_SHARE", 0)
    with blocking_calls() as calls:
        work(caller)
    assert sorted(set(calls)) == []


def test_a_stall_of_the_loop_is_measured_and_forgotten_after_a_minute() -> None:
    now = [0.0]
    watch = StallWatch(lambda: now[0])
    watch.note(0.03)
    watch.note(0.01)
    assert watch.longest == 0.03
    for _ in range(SLOTS + 1):
        now[0] += SLOT_SECONDS
        watch.note(0.002)
    assert watch.longest == 0.002


def test_whatever_blocks_the_loop_shows_in_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[float] = []
    monkeypatch.setattr(stalls, "gauge", lambda name, value: (shown.append(value), gauge(name, value)))

    async def block() -> None:
        watching = asyncio.create_task(StallWatch().run())
        await asyncio.sleep(0.03)
        time.sleep(0.2)
        await asyncio.sleep(0.03)
        watching.cancel()

    asyncio.run(block())
    assert max(shown) >= 0.1
