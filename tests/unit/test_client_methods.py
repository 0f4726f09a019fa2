"""Every route of the server has a method of the SDK, and every method of the SDK reaches a route of the server."""

import inspect
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute, Match, Mount

from millrace.auth.access import access_table
from millrace.client import Millrace, Submission, Unreachable
from millrace.client.errors import Problem
from millrace.client.resource import ResourceClient
from millrace.client.upload import SMALL_FILE_BYTES
from tests.support.whole_app import whole_app

WITHOUT_METHOD = {
    "DELETE /v1/uploads/{import_id}": "tus asks for it; the SDK cancels the import",
    "OPTIONS /v1/tenants/{tenant}/tables/{table}/uploads": "tells other tus clients what the server can do",
    "GET /metrics/stream": "for Prometheus",
    "POST /upload-file/{tenant_id}": "as in mysimbdp, for its clients",
    "GET /tenant/{tenant_id}": "as in mysimbdp, for its clients",
}
DOCUMENTATION = ("/docs", "/redoc", "/openapi.json")
ANSWER = {"items": [], "last": 0, "next": None, "id": "imp_1", "parts": {}, "result": {}}
OVER = {"ops": "applied", "spans": "ended"}
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def expected(routes: list[BaseRoute]) -> set[str]:
    return {each for each in access_table(routes) if not each.split()[1].startswith(DOCUMENTATION)}


@contextmanager
def recording() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that notes each request as METHOD and path, and answers everything."""
    noted: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def answer(self) -> None:
            upgraded = self.headers.get("Upgrade") == "websocket"
            path = self.path.partition("?")[0]
            noted.append(("WS" if upgraded else self.command, path))
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    self.rfile.read(size + 2)
                self.rfile.readline()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            # The first piece of an upload fails, so that the SDK asks where to go on.
            failing = (
                "/uploads/" in path and [method for method, _ in noted].count("PATCH") == 1 and self.command == "PATCH"
            )
            state = next((state for noun, state in OVER.items() if f"/{noun}/" in path), "completed")
            event = b'id: 1\ndata: {"id": "e"}\n\n'
            body = event if path.endswith("/events/stream") else json.dumps({**ANSWER, "state": state}).encode()
            self.send_response(400 if upgraded else 503 if failing else 200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "/v1/uploads/imp_1")
            self.send_header("Upload-Offset", "0" if self.command in ("HEAD", "POST") else str(SMALL_FILE_BYTES + 1))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", noted
        finally:
            server.shutdown()
            thread.join(20)


def methods(platform: Millrace) -> dict[str, Any]:
    """Each public method of the SDK by its name, such as `tables.show`."""
    nouns = {name: each for name, each in vars(platform).items() if isinstance(each, ResourceClient)}
    found = {name: getattr(platform, name) for name in vars(Millrace) if not name.startswith("_")}
    for noun, client in nouns.items():
        found |= {f"{noun}.{name}": getattr(client, name) for name in vars(type(client)) if not name.startswith("_")}
    return found


def call(method: Any, folder: Path) -> None:
    """With values of the right kind for each argument that it needs; a result that can be consumed is consumed."""
    big = folder / "big.csv"
    big.write_bytes(bytes(SMALL_FILE_BYTES + 1))
    values = {"path": big, "submission": Submission("t", "tb"), "stream": BytesIO(b"x"), "rows": b"{}", "count": 1}
    documents = {"agreement": {}, "declaration": {}, "overlap_seconds": 1.0, "values": {1: {}}, "since": NOON}
    needed = {
        name: {**values, **documents}.get(name, "x")
        for name, each in inspect.signature(method).parameters.items()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }
    result = method(**needed)
    if isinstance(result, Iterator):
        list(islice(result, 1))
    elif hasattr(result, "__enter__"):
        with suppress(Problem, Unreachable), result:
            pass
    elif hasattr(result, "send"):
        result.send()


def reached(method: str, path: str, routes: list[BaseRoute]) -> str | None:
    """The endpoint that the server would choose."""
    kind = {"type": "websocket"} if method == "WS" else {"type": "http", "method": method}
    scope = {**kind, "path": path, "root_path": "", "headers": []}
    for route in routes:
        included = getattr(route, "original_router", None)
        found = reached(method, path, included.routes) if included is not None else None
        if (
            found is None
            and not isinstance(route, Mount)
            and included is None
            and route.matches(scope)[0] is Match.FULL
        ):
            found = f"{method} {route.path}"  # type: ignore[attr-defined]
        if found is not None:
            return found
    return None


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[list[BaseRoute]]:
    with whole_app(tmp_path / "app") as (_, client):
        yield client.app.routes  # type: ignore[attr-defined]


def test_every_route_has_a_method_and_every_method_a_route(routes: list[BaseRoute], tmp_path: Path) -> None:
    by_method: dict[str, set[str | None]] = {}
    with recording() as (url, noted), Millrace(url, "mr_test") as platform:
        for name, method in methods(platform).items():
            noted.clear()
            call(method, tmp_path)
            by_method[name] = {reached(*request, routes) for request in noted}
    assert {name: found for name, found in by_method.items() if not found or None in found} == {}
    there = {endpoint for found in by_method.values() for endpoint in found}
    assert expected(routes) - there == WITHOUT_METHOD.keys()
