"""The checker's client: every request is on disk before it leaves, and its outcome is ok, fail or unknown."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from checker.caller import Caller
from checker.capabilities import missing, probe
from checker.checks.k16_notify import is_signed

DOCUMENT = {
    "id": "imp_1", "state": "processing", "rows": {"read": 2, "accepted": 1, "rejected": 1, "ignored": 0},
    "chunks": {"sent": 1, "judged": 1}, "sinks": {"delta": {"durable_chunks": 1}}, "note": "canary-b",
}  # fmt: skip
CANARIES = {"a": "canary-a", "b": "canary-b"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Answers the status that the path names; 0 is a connection that breaks. Looks at the history while it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            invoked = [line for line in lines(tmp_path) if line["type"] == "invoke"]
            status = int(self.path.strip("/"))
            if status == 0 or not invoked:
                self.connection.close()
                return
            body = json.dumps(DOCUMENT).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(20)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "ok"), (202, "ok"), (404, "fail"), (409, "fail"), (503, "info"), (0, "info")]
)
def test_an_answer_is_ok_fail_or_unknown(url: str, tmp_path: Path, status: int, kind: str) -> None:
    with closing(Caller(url, "token", "a", CANARIES, tmp_path)) as caller:
        assert caller.ask("status", "GET", f"/{status}", table="orders", key="k1").kind == kind
    invoked, done = lines(tmp_path)
    assert (invoked["type"], done["type"]) == ("invoke", kind)
    assert (done["tenant"], done["table"], done["idem_key"]) == ("a", "orders", "k1")
    assert invoked["t_mono"] <= done["t_mono"]


def test_what_was_never_sent_has_failed(tmp_path: Path) -> None:
    with closing(Caller("http://127.0.0.1:9", "token", "a", CANARIES, tmp_path)) as caller:
        assert caller.ask("status", "GET", "/200").kind == "fail"


def test_a_process_that_does_not_know_never_asks_again(url: str, tmp_path: Path) -> None:
    with closing(Caller(url, "token", "a", CANARIES, tmp_path)) as caller:
        caller.ask("status", "GET", "/503")
        caller.ask("status", "GET", "/200")
    first, _, second, _ = lines(tmp_path)
    assert second["proc"] > first["proc"]


def test_canaries_and_counts_of_an_answer_are_kept(url: str, tmp_path: Path) -> None:
    with closing(Caller(url, "token", "a", CANARIES, tmp_path)) as caller:
        caller.ask("status", "GET", "/200")
    done = lines(tmp_path)[-1]
    assert done["seen"] == ["b"]
    assert done["result"]["import"] == "imp_1"
    assert done["result"]["counts"] == {**DOCUMENT["rows"], "judged": 1, "durable": 1}


def test_features_are_asked_of_the_openapi_document() -> None:
    table = "/v1/tenants/{tenant}/tables/{table}"
    paths = {f"{table}/rows": {"post": {}}, f"{table}/imports": {"post": {"parameters": [{"name": "kind"}]}}}
    assert probe({"paths": paths}) == {"streams", "deletes"}
    assert missing(probe({"paths": paths})) == ["spans", "truncate", "webhooks"]
    assert probe({}) == set()


def test_signatures_are_those_of_standard_webhooks() -> None:
    delivery = {
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "body": '{"test": 2432232314}',
        "headers": {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
    }
    assert is_signed(delivery)
    assert not is_signed({**delivery, "body": "{}"})
