"""Bodies that are too large, too slow or nobody's, sent to a real server process: refused early, and without its memory."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.platform import record
from tests.support.server_process import AUTH, ServerProcess, server_process

LARGE, MEDIUM = 200 << 20, 48 << 20
PIECE = b"x" * (1 << 20)
# Of a server that has answered a few requests; what a body costs is far above it.
SLACK_MB = 24
ROWS = "/v1/tenants/acme/tables/notes/rows"
IMPORTS = "/v1/tenants/acme/tables/notes/imports"
LEASE_SECONDS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("bodies"), LEASE_SECONDS) as server:
        for tenant in ("acme", "other"):
            server.declare(tenant, "notes", record("notes", ("id", "long"), key=("id",)))
        yield server


def token_of(server: ServerProcess, tenant: str) -> dict[str, str]:
    wanted = json.dumps({"name": f"t{time.time_ns()}", "tenant": tenant, "role": "admin"})
    made = server.ask("POST", "/v1/tokens", wanted, Content_Type="application/json")
    return {"Authorization": f"Bearer {json.loads(made.text)['token']}"}


@contextmanager
def begun(server: ServerProcess, method: str, path: str, headers: dict[str, str]) -> Iterator[socket.socket]:
    """A request of which only the head is sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        said = {"Host": "x", "Content-Type": "application/json", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
        link.sendall("\r\n".join(lines).encode())
        yield link


def answer(link: socket.socket) -> str:
    """Reads until the answer has a body."""
    text = b""
    while b"\r\n\r\n" not in text or text.endswith(b"\r\n\r\n"):
        piece = link.recv(1 << 16)
        if not piece:
            break
        text += piece
    return text.decode()


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [
        ("PUT", "/v1/tenants/acme", LARGE),
        ("POST", "/v1/query", MEDIUM),
        ("POST", ROWS, MEDIUM),
        ("POST", IMPORTS, MEDIUM),
        ("POST", "/v1/tenants/acme/tables/notes/validate", MEDIUM),
        ("POST", "/v1/tenants/acme/tables/notes/uploads", MEDIUM),
        ("POST", "/upload-file/acme", MEDIUM),
    ],
)
def test_without_a_token_the_answer_comes_before_the_body_and_the_body_costs_nothing(
    server: ServerProcess, method: str, path: str, size: int
) -> None:
    before = server.resident_mb()
    with begun(server, method, path, {"Content-Length": str(size)}) as link:
        assert answer(link).startswith("HTTP/1.1 401"), "not one byte of the body was sent"
        for _ in range(size // len(PIECE)):
            link.sendall(PIECE)
    assert server.resident_mb() - before < SLACK_MB


def test_another_tenants_path_is_missing_before_the_body_is_read(server: ServerProcess) -> None:
    with begun(
        server, "PUT", "/v1/tenants/acme/tables/notes", {**token_of(server, "other"), "Content-Length": "9"}
    ) as link:
        assert answer(link).startswith("HTTP/1.1 404")


@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/tenants/acme"), ("POST", "/v1/query"), ("POST", ROWS)])
def test_a_declared_length_over_the_bound_is_refused_at_once(server: ServerProcess, method: str, path: str) -> None:
    with begun(server, method, path, {**AUTH, "Content-Length": str(LARGE)}) as link:
        refused = answer(link)
    assert refused.startswith("HTTP/1.1 413")
    assert '"remedy":"Send' in refused


@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/tenants/acme"), ("POST", "/v1/query"), ("POST", ROWS)])
def test_a_body_without_a_length_is_counted_while_it_is_read(server: ServerProcess, method: str, path: str) -> None:
    before = server.resident_mb()
    with begun(server, method, path, {**AUTH, "Transfer-Encoding": "chunked"}) as link:
        for _ in range(4):
            link.sendall(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
        refused = answer(link)
        assert refused.startswith("HTTP/1.1 413")
        assert "it may" in refused
        for _ in range(MEDIUM // len(PIECE)):
            link.sendall(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
    assert server.resident_mb() - before < SLACK_MB


def test_an_upload_that_stops_is_answered_after_its_lease(server: ServerProcess) -> None:
    with begun(server, "POST", IMPORTS, {**AUTH, "Content-Length": "100"}) as link:
        link.sendall(b"id\n1\n")
        refused = answer(link)
    assert refused.startswith("HTTP/1.1 408")
    assert "resumed" in refused


def test_a_head_that_does_not_end_is_refused(server: ServerProcess) -> None:
    before = server.resident_mb()
    with begun(server, "GET", "/v1/tenants", {}) as link:
        assert answer(link).startswith("HTTP/1.1 401")
        link.sendall(b"GET /v1/tenants HTTP/1.1\r\nX-Long: ")
        try:
            for _ in range(LARGE // len(PIECE)):
                link.sendall(PIECE)
        except ConnectionError:
            pass
        else:
            assert answer(link).startswith("HTTP/1.1 431")
    assert server.resident_mb() - before < SLACK_MB


def test_trailers_that_do_not_end_close_the_connection(server: ServerProcess) -> None:
    before = server.resident_mb()
    trailer = b"X-Long: %s\r\n" % (b"x" * 8000)
    with begun(server, "POST", "/v1/tenants/acme/app/run", {"Transfer-Encoding": "chunked"}) as link:
        link.sendall(b"0\r\n")
        with pytest.raises(ConnectionError):
            link.sendall(trailer * (LARGE // len(trailer)))
    assert server.resident_mb() - before < SLACK_MB


def test_requests_that_wait_for_unread_answers_are_few(server: ServerProcess) -> None:
    before = server.resident_mb()
    many = b"GET /v1/tenants HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as link:
        with suppress(OSError):
            for _ in range(200):
                link.sendall(many)
        begun_at = time.monotonic()
        assert server.ask("GET", "/v1/tenants").status == 200
        assert time.monotonic() - begun_at < 2
    assert server.resident_mb() - before < SLACK_MB
