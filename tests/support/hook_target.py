"""A subscriber for tests: a local HTTP server that keeps what it is sent and answers as it is told.

Each entry of `answers` serves one request: a status, a (status, headers) pair, or HANG; when they run out, 204."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG = "hang"


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    def is_signed_with(self, secret: str) -> bool:
        """As a receiver would check it, with nothing of ours."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return expected in self.headers["webhook-signature"].split(" ")


@dataclass
class HookTarget:
    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    always: Any = 204
    at_once: int = 0
    most_at_once: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pause: float = 0.0

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.received]


@contextmanager
def hook_target(port: int = 0) -> Iterator[HookTarget]:
    target = HookTarget()

    class Handler(_Handler):
        hooks = target

    with _Server(("127.0.0.1", port), Handler) as server:
        target.url = f"http://127.0.0.1:{server.server_port}/hook?key=1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield target
        finally:
            target.released.set()
            server.shutdown()
            thread.join(20)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    hooks: HookTarget

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""

    def do_POST(self) -> None:
        hooks = self.hooks
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with hooks.lock:
            hooks.received.append(Received({**headers, ":path": self.path}, body, time.time()))
            answer = hooks.answers.pop(0) if hooks.answers else hooks.always
            hooks.at_once += 1
            hooks.most_at_once = max(hooks.most_at_once, hooks.at_once)
        if answer == HANG or hooks.pause:
            hooks.released.wait(60 if answer == HANG else hooks.pause)
        with hooks.lock:
            hooks.at_once -= 1
        if answer != HANG:
            self._answer(*(answer if isinstance(answer, tuple) else (answer, {})))

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
