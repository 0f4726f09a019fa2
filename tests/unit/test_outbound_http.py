"""Requests go to the address that was judged and nowhere else, are signed as Amazon's own library signs them, and are tried
again only where that may help."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import Any

import pytest
from botocore import auth, awsrequest, credentials

from millrace.model.errors import Invalid, Unavailable
from millrace.outbound import http
from millrace.outbound.addresses import parse_target
from millrace.outbound.http import Http, HttpFailed, Request, post
from millrace.outbound.s3_signing import EMPTY, S3Keys, query_of, signed


class Server:
    """Answers what it is told to, one status after the other, and remembers what it was asked."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.asked: list[tuple[str, str]] = []
        self.statuses = list(statuses)
        self.headers = headers or {}
        self.body = body
        self.port = 0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append((handler.headers["Host"], handler.path))
        handler.send_response(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])
        for name, value in {**self.headers, "Content-Length": str(len(self.body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(self.body)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = listening.server_port
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join(20)
        listening.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_SECONDS", 0.001)


def get(server: Server, host: str = "store.example") -> Any:
    judged = Http(lambda _: ["127.0.0.1"])
    return judged.send(lambda: Request("GET", f"http://{host}:{server.port}/b/x"))


def test_the_judged_address_is_asked_under_the_name_that_was_given() -> None:
    with running(Server(200, body=b"found")) as server:
        assert get(server).body == b"found"
    assert server.asked == [(f"store.example:{server.port}", "/b/x")]


def test_a_host_that_may_not_be_reached_is_not_asked() -> None:
    def refuse(host: str) -> list[str]:
        raise Invalid(f"{host} is private.")

    with running(Server(200)) as server:
        with pytest.raises(Invalid, match="private"):
            Http(refuse).send(lambda: Request("GET", f"http://inside:{server.port}/"))
        assert server.asked == []


def test_nobody_is_sent_elsewhere() -> None:
    with running(Server(200, body=b"inside")) as inside:
        away = {"Location": f"http://127.0.0.1:{inside.port}/secret"}
        with running(Server(307, headers=away)) as server, pytest.raises(HttpFailed, match="307"):
            get(server)
        assert inside.asked == []


def test_a_busy_server_is_asked_again_and_a_refusal_stands() -> None:
    with running(Server(503, 500, 200, body=b"at last")) as server:
        assert get(server).body == b"at last"
        assert len(server.asked) == 3
    with running(Server(403, body=b"<Code>AccessDenied</Code>")) as server:
        with pytest.raises(HttpFailed, match="AccessDenied"):
            get(server)
        assert len(server.asked) == 1
    with running(Server(503)) as server:
        with pytest.raises(OSError, match="503"):
            get(server)
        assert len(server.asked) == http.ATTEMPTS


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 10)
    with running(Server(200, body=b"x" * 11)) as server, pytest.raises(OSError, match="more than 10 bytes"):
        get(server)


@pytest.mark.parametrize("url", ["ftp://node/x", "//node/x", "http://node:x/", "http://[node/", "http://node/\u00e9"])
def test_an_address_that_a_server_invents_is_a_failure_like_others(url: str) -> None:
    """A name node may say anything about where its data nodes are."""
    made = []

    def make() -> Request:
        made.append(url)
        return Request("GET", url)

    with pytest.raises(HttpFailed, match="not one of HTTP"):
        Http(lambda _: ["127.0.0.1"]).send(make)
    assert len(made) == 1


@pytest.mark.parametrize("token", ["hidden\nword", "hidden\u20ac"])
def test_a_secret_that_no_header_can_hold_is_not_quoted(token: str) -> None:
    with running(Server(200)) as server:
        request = Request("GET", f"http://127.0.0.1:{server.port}/", {"x-amz-security-token": token})
        with pytest.raises(HttpFailed) as failed:
            Http(lambda _: ["127.0.0.1"]).send(lambda: request)
    assert "hidden" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_little_is_quoted_of_an_answer_that_is_not_http() -> None:
    class Babbler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"x" * 20_000 + b"\r\n\r\n")

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Babbler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{listening.server_port}/"
    try:
        with pytest.raises(OSError, match="RemoteProtocolError") as failed:
            Http(lambda _: ["127.0.0.1"]).send(lambda: Request("GET", url))
        with pytest.raises(Unavailable, match="does not speak HTTP") as silent:
            asyncio.run(post(parse_target(url), {}, b"", [ip_network("127.0.0.0/8")]))
    finally:
        listening.shutdown()
        thread.join(20)
        listening.server_close()
    assert max(len(str(failed.value)), len(str(silent.value))) < 500


def test_what_is_missing_is_missing_at_once() -> None:
    with running(Server(404)) as server:
        with pytest.raises(FileNotFoundError):
            get(server)
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/bucket/lake/acme/t/_delta_log/00000000000000000001.json", {"range": "bytes=0-9"}),
        ("PUT", "/bucket/lake/a%20b/c~d%2Be.json", {"if-none-match": "*", "content-length": "3"}),
        ("GET", "/bucket?" + query_of({"list-type": "2", "prefix": "a b/ü&+", "continuation-token": "x/=="}), {}),
    ],
)
def test_requests_are_signed_as_amazon_s_own_library_does(
    method: str, path: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, url = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC), f"https://s3.eu-west-1.amazonaws.com{path}"
    ours = signed(method, url, headers, EMPTY, S3Keys("KEY", "SECRET", "TOKEN"), "eu-west-1", now)
    monkeypatch.setattr(auth, "get_current_datetime", lambda **_: now.replace(tzinfo=None))
    theirs = awsrequest.AWSRequest(method, url, headers={**headers, "X-Amz-Content-SHA256": EMPTY})
    auth.S3SigV4Auth(credentials.Credentials("KEY", "SECRET", "TOKEN"), "s3", "eu-west-1").add_auth(theirs)
    assert ours["authorization"] == theirs.headers["Authorization"]
