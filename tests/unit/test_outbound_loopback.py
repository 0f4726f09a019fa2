"""Listeners for libraries that connect by themselves: they lead to judged addresses, and serve this process only."""

import errno
import socket
import struct
import subprocess
import sys

import pytest

from millrace.outbound import addresses
from millrace.outbound.addresses import Judged
from millrace.outbound.loopback import listen
from millrace.outbound.socks import socks_server
from tests.support.astray import ALLOWED, FORBIDDEN, NAME, PERMITTED, counting
from tests.support.waiting import wait_until


def speak_socks(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"\x05\x01\x00" + request)
        return b"".join(iter(lambda: client.recv(100), b""))


def _to_name(name: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + struct.pack(">H", port)


def _to_address(address: str, port: int) -> bytes:
    return b"\x05\x01\x00\x01" + socket.inet_aton(address) + struct.pack(">H", port)


def test_the_socks_server_connects_only_to_judged_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    port = socks_server(Judged(ALLOWED)).port
    with counting(FORBIDDEN) as forbidden, counting(PERMITTED, lambda peer: peer.sendall(b"hello")) as permitted:
        granted, refused = b"\x05\x00\x05\x00\x00\x01" + bytes(6), b"\x05\x00\x05\x02\x00\x01" + bytes(6)
        assert speak_socks(port, _to_address(PERMITTED, permitted.port)) == granted + b"hello"
        for request in (_to_address(FORBIDDEN, forbidden.port), _to_name(NAME, forbidden.port)):
            assert speak_socks(port, request) == refused
        monkeypatch.setattr(addresses, "resolve", lambda _: [PERMITTED])
        assert speak_socks(port, _to_name("db.example", permitted.port)) == granted + b"hello"
        assert speak_socks(port, _to_address(PERMITTED, 1))[3] == 4
        assert (permitted.connections, forbidden.connections) == (2, 0)


def test_no_other_process_gets_through() -> None:
    """Another process of the same user, as a client app may be."""
    port = socks_server(Judged(ALLOWED)).port
    program = (
        "import socket, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
        "s.sendall(b'\\x05\\x01\\x00')\n"
        "sys.stdout.write(repr(s.recv(2)))"
    )
    words = [sys.executable, "-c", program, str(port)]
    answered = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert answered.stdout == "b''" or "ConnectionReset" in answered.stderr
    with socket.create_connection(("127.0.0.1", port), 5) as ours:
        ours.sendall(b"\x05\x01\x00")
        assert ours.recv(2) == b"\x05\x00"


def test_a_listener_that_is_closed_takes_no_connection() -> None:
    async def serve(*_: object) -> None: ...

    listener = listen(serve)
    with socket.create_connection(("127.0.0.1", listener.port), 5) as client:
        assert client.recv(1) == b""
    listener.close()
    wait_until(lambda: _refuses(listener.port), 10, "the listener to be closed")


def _refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
