"""The operator's store is asked with the operator's keys and nothing else from the environment, straight, and no name is
taken for claimed that is not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from millrace.outbound.operator_objects import CLAIMS, OperatorObjects, s3_store
from millrace.outbound.s3_signing import S3Keys


class Server:
    """Answers what it is told to, one status after the other, then 200; remembers what it was asked."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.port = 0

    def objects(self, token: str | None = None) -> OperatorObjects:
        keys = S3Keys("key", "secret", token)
        store = s3_store("bucket", keys, f"http://127.0.0.1:{self.port}", "eu-west-1")
        return OperatorObjects("s3://bucket/lake/acme/t", store, "lake/acme/t")

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.asked]


@contextmanager
def running(*statuses: int) -> Iterator[Server]:
    server = Server(*statuses)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server.asked.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
            self.send_response(server.statuses.pop(0) if server.statuses else 200)
            told = {"ETag": '"x"', "Content-Length": "0", "Last-Modified": "Mon, 16 Nov 2026 07:00:00 GMT"}
            for name, value in {**told, "Location": "http://127.0.0.1:1/elsewhere"}.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_PUT = do_HEAD = answer

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
        thread.join(10)
        listening.server_close()


@pytest.mark.parametrize("token", [None, "temporary"])
def test_the_environment_has_no_say(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    others = {
        "ACCESS_KEY_ID": "other",
        "SECRET_ACCESS_KEY": "other",
        "SESSION_TOKEN": "other",
        "SKIP_SIGNATURE": "true",
    }
    for name, value in others.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with running() as server:
        assert server.objects(token).put_if_absent("_delta_log/1.json", b"{}")
    ((method, path, headers),) = server.asked
    assert (method, path) == ("PUT", "/bucket/lake/acme/t/_delta_log/1.json")
    assert "Credential=key/" in headers["authorization"]
    assert "/eu-west-1/s3/" in headers["authorization"]
    assert headers.get("x-amz-security-token") == token
    assert headers["if-none-match"] == "*"


def test_a_name_is_taken_only_if_it_is_there() -> None:
    with running(412) as server:
        assert not server.objects().put_if_absent("x", b"")
        assert server.methods == ["PUT", "HEAD"]
    # Another claim was under way, and failed.
    with running(409, 404, 200) as server:
        assert server.objects().put_if_absent("x", b"")
        assert server.methods == ["PUT", "HEAD", "PUT"]
    with running(*[409, 404] * CLAIMS) as server, pytest.raises(OSError, match="can neither be claimed nor read"):
        server.objects().put_if_absent("x", b"")


def test_failures_are_told_in_one_line_and_redirects_are_not_followed() -> None:
    with running(503, 200) as server:
        server.objects().put("x", b"")
        assert server.methods == ["PUT", "PUT"]
    for status in (307, 403):
        with running(status) as server, pytest.raises(OSError, match=str(status)) as failed:
            server.objects().put("x", b"")
        assert "\n" not in str(failed.value)
        assert server.methods == ["PUT"]
    with running(404) as server, pytest.raises(FileNotFoundError):
        server.objects().get("x")


def test_a_conflict_is_a_failure_like_others_and_what_is_missing_is_told_in_one_line() -> None:
    """S3 also answers 409 to a plain request while another one about the same name is under way."""
    with running(*[409] * 3, 404) as server:
        objects = server.objects()
        for ask in (objects.get, objects.size, lambda name: objects.put(name, b"")):
            with pytest.raises(OSError, match="409"):
                ask("a")
        with pytest.raises(FileNotFoundError, match="404") as missing:
            objects.get("a")
    assert "\n" not in str(missing.value)
