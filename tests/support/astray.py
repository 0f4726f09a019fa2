"""Servers that try to lead a client astray, and servers that must never be reached: each counts who connects to it."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from typing import Any

# Both are this machine. The sinks of these tests may connect to the first one only; libc says that NAME is the second.
PERMITTED, FORBIDDEN, NAME = "127.0.0.2", "127.0.0.1", "localhost"
ALLOWED = (ip_network(f"{PERMITTED}/32"),)
SILENCE_SECONDS = 0.2

Answering = Callable[[socket.socket], None]


class CountingServer:
    """Answers each connection with `answering` and closes it."""

    def __init__(self, listener: socket.socket, answering: Answering) -> None:
        self.connections = 0
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._answering = answering

    def run(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError, struct.error):
            peer.settimeout(SILENCE_SECONDS)
            self._answering(peer)


def closes(peer: socket.socket) -> None:
    """Listens for a moment and says that it understood nothing, in HTTP."""
    if peer.recv(65536)[:4].strip().isalpha():
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def counting(address: str, answering: Answering = closes) -> Iterator[CountingServer]:
    with _served(socket.create_server((address, 0)), answering) as server:
        yield server


@contextmanager
def a_pair(answering: Answering = closes) -> Iterator[tuple[CountingServer, CountingServer]]:
    """A permitted server and a forbidden one on the same port."""
    permitted, forbidden = _on_one_port()
    with _served(permitted, answering) as one, _served(forbidden, closes) as other:
        yield one, other


def _on_one_port() -> tuple[socket.socket, socket.socket]:
    while True:
        forbidden = socket.create_server((FORBIDDEN, 0))
        try:
            return socket.create_server((PERMITTED, forbidden.getsockname()[1])), forbidden
        except OSError:
            forbidden.close()


@contextmanager
def _served(listener: socket.socket, answering: Answering) -> Iterator[CountingServer]:
    server = CountingServer(listener, answering)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        # Closing alone does not wake a thread that waits for connections.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answers_http(answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> Answering:
    """`answer` gets the first line of a request."""

    def answering(peer: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += peer.recv(65536)
        status, headers, body = answer(request.partition(b"\r\n")[0].decode())
        described = {"Content-Length": str(len(body)), "Connection": "close", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in described.items())
        peer.sendall(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)
        with suppress(OSError):
            while peer.recv(65536):
                pass

    return answering


def exactly(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = peer.recv(size - len(found))
        if not piece:
            raise OSError("closed")
        found += piece
    return found


def table_of_bigquery(upload_to: str) -> Callable[[str], tuple[int, dict[str, str], bytes]]:
    """A BigQuery in which every table is there, and rows are to be sent to another address."""

    def answer(line: str) -> tuple[int, dict[str, str], bytes]:
        headers: dict[str, Any] = {"Content-Type": "application/json"}
        if "/upload/" in line:
            headers["Location"] = upload_to
        table = (
            b'{"tableReference": {"projectId": "p", "datasetId": "d", "tableId": "t"}, "labels": {}, "numRows": "0"}'
        )
        return 200, headers, table

    return answer
