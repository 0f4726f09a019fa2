"""A stand-in for the platform's REST API: keeps uploads in memory, breaks where it is told to.

Faults are data: each entry of `patch_faults` spoils one PATCH, each of `refusals` one request of any kind."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "mr_test"
ROWS = {"read": 3, "accepted": 3, "rejected": 0, "ignored": 0}


@dataclass
class Cut:
    """The connection dies after so many bytes of the body; the resume point then lies at `keeps`."""

    after: int
    keeps: int


@dataclass
class Refuse:
    """The platform answers so instead of taking the body."""

    status: int
    body: dict[str, Any]


@dataclass
class Stall:
    """The platform takes so many bytes and then no more until `released` is set."""

    after: int


@dataclass
class FakePlatform:
    url: str = ""
    stored: dict[str, bytearray] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    queries: dict[str, dict[str, str]] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    posted: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    patch_faults: list[Cut | Refuse | Stall] = field(default_factory=list)
    refusals: list[Refuse | None] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    pages: dict[str | None, Any] = field(default_factory=dict)
    quiet_streams: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def document(self, import_id: str) -> dict[str, Any]:
        data = {
            "id": import_id, "tenant": "acme", "table": "readings", "state": "completed", "rows": dict(ROWS),
            "chunks": {"sent": 1, "judged": 1}, "bytes": len(self.stored.get(import_id, b"")),
            "sinks": {"delta": {"durable_chunks": 1, "parked_chunks": 0, "refused_rows": 0}},
            "file_name": self.queries.get(import_id, {}).get("file_name"), "started_at": "2026-01-01T00:00:00Z",
            "ended_at": "2026-01-01T00:00:02Z", "error": None, "definition": "d1", "first_version": 1,
            "rows_per_second": 1.5,
        }  # fmt: skip
        return {**data, **self.outcome}

    def admit(self, key: str, query: dict[str, str], length: int) -> str:
        import_id = self.keys.setdefault(key, f"imp_{len(self.keys) + 1}")
        if import_id not in self.stored:
            self.stored[import_id], self.lengths[import_id], self.queries[import_id] = bytearray(), length, query
        return import_id


@contextmanager
def fake_platform() -> Iterator[FakePlatform]:
    platform = FakePlatform()

    class Handler(_Handler):
        fake = platform

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        platform.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield platform
        finally:
            platform.released.set()
            server.shutdown()
            thread.join(20)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakePlatform

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""

    def do_GET(self) -> None:
        if not self._refused():
            self._answer_get(urlsplit(self.path).path)

    def do_HEAD(self) -> None:
        import_id = self.path.rpartition("/")[2]
        if self._refused():
            return
        if import_id not in self.fake.stored or self.fake.outcome.get("state") == "failed":
            self._reply(404, {})
        else:
            self._reply(200, None, {"Upload-Offset": str(len(self.fake.stored[import_id]))})

    def do_POST(self) -> None:
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        body = self._body()
        if self._refused():
            return
        key = self.headers.get("Idempotency-Key", "")
        if path.endswith("/imports"):
            import_id = self.fake.admit(key, query, len(body))
            self.fake.tenants[import_id] = path.split("/")[3]
            self.fake.stored[import_id][:] = body
            self._reply(202, self.fake.document(import_id))
        elif path.endswith("/uploads"):
            import_id = self.fake.admit(key, query, int(self.headers["Upload-Length"]))
            self.fake.tenants[import_id] = path.split("/")[3]
            offset = str(len(self.fake.stored[import_id]))
            self._reply(201, None, {"Location": f"/v1/uploads/{import_id}", "Upload-Offset": offset})
        elif path.endswith("/end") and path.removesuffix("/end") not in self.fake.posted:
            self._reply(404, {"code": "no_span", "detail": "There is no such span."})
        else:
            self.fake.posted.add(path)
            self.fake.bodies.append(json.loads(body or b"null"))
            self._reply(200, self.fake.answers.get(("POST", path)) or self.fake.document(path.split("/")[3]))

    def do_PUT(self) -> None:
        self.fake.bodies.append(json.loads(self._body()))
        if not self._refused():
            self._reply(200, self.fake.answers.get(("PUT", urlsplit(self.path).path), {"revision": 1, "changed": True}))

    def do_DELETE(self) -> None:
        if not self._refused():
            self._reply(204, None)

    def do_PATCH(self) -> None:
        import_id, length = self.path.rpartition("/")[2], int(self.headers["Content-Length"])
        self.fake.requests.append(("PATCH", self.path))
        kept = self.fake.stored[import_id]
        if int(self.headers["Upload-Offset"]) != len(kept):
            self.rfile.read(length)
            self._reply(409, {"code": "offset", "detail": "Another offset."})
            return
        fault = self.fake.patch_faults.pop(0) if self.fake.patch_faults else None
        if isinstance(fault, Refuse):
            self._reply(fault.status, fault.body)
            self._hang_up()
        elif isinstance(fault, Cut):
            kept += self.rfile.read(min(fault.after, length))
            del kept[fault.keeps :]
            self._hang_up()
        elif isinstance(fault, Stall):
            kept += self.rfile.read(fault.after)
            self.fake.released.wait(30)
            self._hang_up()
        else:
            kept += self.rfile.read(length)
            self._reply(204, None, {"Upload-Offset": str(len(kept))})

    def _answer_get(self, path: str) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query))
        if path == "/v1/events/stream":
            self._stream_events(int(self.headers.get("Last-Event-ID", 0)))
        elif path.endswith("/errors/export"):
            self._reply(200, query["format"].encode())
        elif path.endswith("/errors"):
            self._reply(200, self.fake.pages[query.get("cursor")])
        elif ("GET", path) in self.fake.answers:
            self._reply(200, self.fake.answers["GET", path])
        elif path.startswith("/v1/imports/"):
            self._reply(200, self.fake.document(path.split("/")[3]))
        else:
            self._reply(404, {"code": "missing", "detail": f"{path} does not exist.", "remedy": "Look again."})

    def _stream_events(self, after: int) -> None:
        """One event a connection, or none on a quiet one, then it breaks off without a proper end."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        event = f'id: {after + 1}\nevent: x\ndata: {{"id": "e{after + 1}"}}\n\n'
        quiet, self.fake.quiet_streams = self.fake.quiet_streams > 0, max(0, self.fake.quiet_streams - 1)
        text = f": hello\n\n{'' if quiet else event}".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self._hang_up()

    def _refused(self) -> bool:
        self.fake.requests.append((self.command, self.path))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply(401, {"code": "unauthorised", "detail": "No valid token.", "remedy": "Give one."})
            return True
        if not self.fake.refusals:
            return False
        refusal = self.fake.refusals.pop(0)
        if refusal is None:
            return False
        self._reply(refusal.status, refusal.body)
        return True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
