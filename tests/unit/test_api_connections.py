"""Connections that could cost a server much: trailers, requests in a row, answers that nobody reads."""

import asyncio
import base64
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from millrace.api import unread, websocket_head
from millrace.api.http_head import HEAD_BYTES, MOST_WAITING, BoundedHttp
from tests.support.small_server import SmallServer
from tests.support.whole_app import TOKEN, served_app

ASKED = b"GET /v1/tenants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN.encode()
WEBSOCKET = b"GET /v1/tenants/acme/tables/t/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallServer]:
    with served_app(tmp_path_factory.mktemp("connections")) as server:
        yield server


@contextmanager
def linked(server: SmallServer, *, small_window: bool = False) -> Iterator[socket.socket]:
    with socket.socket() as link:
        if small_window:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.settimeout(20)
        link.connect(("127.0.0.1", urlsplit(server.url).port or 0))
        yield link


def all_of(link: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    text = b""
    with suppress(ConnectionError):
        while piece := link.recv(1 << 16):
            text += piece
    return text


def test_a_trailer_is_no_header(server: SmallServer) -> None:
    trailed = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with linked(server) as link:
        link.sendall(b"%s0\r\nAuthorization: Bearer %s\r\n\r\n" % (trailed, TOKEN.encode()))
        assert all_of(link).startswith(b"HTTP/1.1 401")


def test_a_body_in_many_small_chunks_may_be_longer_than_a_head(server: SmallServer) -> None:
    head = b"POST /v1/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n" % TOKEN.encode()
    more = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    count = HEAD_BYTES // 16 + 1
    with linked(server) as link:
        link.sendall(head + more + b"10\r\n" + b" " * 16 + b"\r\n")
        for _ in range(count):
            link.sendall(b"10\r\n" + b" " * 16 + b"\r\n")
        link.sendall(b"2\r\n{}\r\n0\r\n\r\n")
        assert all_of(link).startswith(b"HTTP/1.1 422"), "the body came whole"


def test_requests_in_a_row_are_answered_in_order(server: SmallServer) -> None:
    with linked(server) as link:
        link.sendall(ASKED * MOST_WAITING)
        link.sendall(ASKED.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        assert all_of(link).count(b"HTTP/1.1 200") == MOST_WAITING + 1


def test_the_connection_ends_behind_as_many_requests_as_may_wait(server: SmallServer) -> None:
    with linked(server) as link:
        link.sendall(ASKED * 1000)
        answers = all_of(link)
    assert MOST_WAITING < answers.count(b"HTTP/1.1 200") < 3 * MOST_WAITING
    assert answers.count(b"connection: close") == 1, "the last one says so"
    assert answers.endswith(b'{"items":[]}')


def keep_little_in_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the system takes megabytes that nobody has read."""
    begin = BoundedHttp.connection_made

    def connection_made(self: BoundedHttp, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        begin(self, transport)

    monkeypatch.setattr(BoundedHttp, "connection_made", connection_made)


def test_who_reads_nothing_is_cut_off_and_who_reads_slowly_is_not(
    server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "UNREAD_SECONDS", 0.2)
    keep_little_in_the_system(monkeypatch)
    page = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    last = page.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with linked(server, small_window=True) as idle, linked(server, small_window=True) as slow:
        for link in (idle, slow):
            link.sendall(page * (MOST_WAITING - 1) + last)
        read, until = 0, time.monotonic() + 2
        while time.monotonic() < until:
            read += len(slow.recv(1 << 14))
            time.sleep(0.02)
        rest = all_of(slow)
        assert rest.endswith(b"}")
        cut = all_of(idle)
        assert len(cut) < read + len(rest), "it was not sent all of the answers"


@pytest.mark.parametrize(
    ("more", "status"),
    [(b"X: " + b"a" * 250_000, b"431"), (b"\r\n".join(b"X-%d: 1" % one for one in range(300)), b"431")],
)
def test_a_websocket_s_head_that_is_too_large_is_answered(server: SmallServer, more: bytes, status: bytes) -> None:
    with linked(server) as link:
        link.sendall(b"%s%s\r\n\r\n" % (WEBSOCKET, more))
        assert all_of(link).startswith(b"HTTP/1.1 " + status)


def test_a_handshake_that_does_not_end_is_ended(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_head, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(websocket_head.BoundedWebSocket, "handle_connect", lambda *_: None)
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % base64.b64encode(bytes(16))
    with linked(server) as link:
        link.sendall(WEBSOCKET + key)
        assert all_of(link) == b""
