"""A tenant's own bucket that lies, drips or never ends: its table cannot be read, and costs neither disk nor time."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millrace.lake.log import load
from millrace.lake.read import live_files
from millrace.lake.remote import RemoteStore
from millrace.outbound import s3_listing, unhurried
from millrace.outbound.s3 import S3Objects
from millrace.outbound.s3_signing import S3Keys

LARGE = bytes(20 << 20)
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def bucket(answer: Answer) -> Iterator[S3Objects]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                answer(self)
            except OSError:
                self.close_connection = True

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{listening.server_port}"
        yield S3Objects("b", "acme/notes", S3Keys("a", "s"), lambda _: ["127.0.0.1"], endpoint, "us-east-1")
    finally:
        listening.shutdown()
        thread.join(20)
        listening.server_close()


def whole(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(b"" if handler.command == "HEAD" else body)


def listing(names: list[str], token: str = "") -> bytes:
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    entries = "".join(
        f"<Contents><Key>acme/notes/{name}</Key><Size>9</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        for name in names
    )
    return f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode()


def test_a_file_that_is_larger_than_its_log_declares_is_not_kept(tmp_path: Path) -> None:
    add = {"path": "part.parquet", "size": 1, "modificationTime": 0, "partitionValues": {}, "dataChange": True}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "list-type" in handler.path:
            whole(handler, listing(["_delta_log/00000000000000000000.json"]))
        else:
            whole(handler, json.dumps({"add": add}).encode() if "_delta_log" in handler.path else LARGE)

    with bucket(answer) as objects:
        store = RemoteStore(tmp_path, objects)
        with pytest.raises(OSError, match=r"acme/notes/part\.parquet is answered with more than 1048577 bytes"):
            live_files(store, load(store))
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) == 0


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(unhurried, "ANSWER_SECONDS", 0.5)
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n"
        handler.wfile.write(head + (b"\r\n" if part == "body" else b"X-Drip: "))
        while not over.wait(0.05):
            handler.wfile.write(b"x")

    begun = time.monotonic()
    with bucket(answer) as objects:
        try:
            with pytest.raises(OSError, match=r"acme/notes/one is answered too slowly"):
                objects.get("one")
        finally:
            over.set()
    assert time.monotonic() - begun < 20


def test_a_listing_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "MOST_LISTED", 50)
    pages = iter(range(10_000))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        page = next(pages)
        whole(handler, listing([f"f{page}-{number}" for number in range(10)], f"t{page}"))

    with bucket(answer) as objects, pytest.raises(OSError, match=r"acme/notes/_delta_log lists more than 50"):
        objects.list("_delta_log")


def test_a_listing_that_repeats_itself_is_cut_off() -> None:
    with (
        bucket(lambda handler: whole(handler, listing([], "same"))) as objects,
        pytest.raises(OSError, match="not end"),
    ):
        objects.list("_delta_log")
