"""Followers of the event stream as bare sockets: many of them cost little, and one can leave off reading."""

import json
import selectors
import socket
import time
from typing import Any
from urllib.parse import urlsplit


class EventFollower:
    """Reads when it is told to. `slow`: its socket holds next to nothing that it has not read."""

    def __init__(self, url: str, token: str, after: int = 0, *, tenant: str | None = None, slow: bool = False) -> None:
        where = urlsplit(url)
        self.socket = socket.socket()
        if slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.settimeout(20)
        self.socket.connect((where.hostname, where.port))
        query = "" if tenant is None else f"?tenant={tenant}"
        lines = [f"GET /v1/events/stream{query} HTTP/1.1", f"Host: {where.netloc}", f"Authorization: Bearer {token}"]
        self.socket.sendall("\r\n".join([*lines, f"Last-Event-ID: {after}", "", ""]).encode())
        self.received = b""
        self.is_over = False

    def read_some(self) -> None:
        piece = self.socket.recv(1 << 16)
        self.received += piece
        # The last chunk of an answer is empty.
        self.is_over = not piece or self.received.endswith(b"\r\n0\r\n\r\n")

    def read_until(self, text: bytes, seconds: float = 20) -> None:
        ends = time.monotonic() + seconds
        while text not in self.received:
            assert not self.is_over, self.received[-500:]
            assert time.monotonic() < ends, f"{text!r} did not come"
            self.read_some()

    def read_to_the_end(self) -> None:
        while not self.is_over:
            self.read_some()

    @property
    def status(self) -> int:
        return int(self.received.split(b" ", 2)[1])

    @property
    def events(self) -> list[tuple[int, dict[str, Any]]]:
        """A chunk of the answer holds whole events, so its own lines stand between them."""
        lines = self.received.decode().splitlines()
        numbers = [int(line[4:]) for line in lines if line.startswith("id: ")]
        return list(zip(numbers, [json.loads(line[6:]) for line in lines if line.startswith("data: ")], strict=True))

    def close(self) -> None:
        self.socket.close()


def read_all(followers: list[EventFollower], text: bytes, seconds: float) -> None:
    """Until each of them has received the text."""
    ends, left = time.monotonic() + seconds, set(followers)
    with selectors.DefaultSelector() as ready:
        for follower in followers:
            ready.register(follower.socket, selectors.EVENT_READ, follower)
        while left:
            assert time.monotonic() < ends, f"{len(left)} of {len(followers)} have not received {text!r}"
            for key, _ in ready.select(1):
                key.data.read_some()
                if text in key.data.received:
                    left.discard(key.data)
