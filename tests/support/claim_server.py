"""A bucket in memory that speaks enough of S3 to claim names: atomically, or as a store that checks first and writes then."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LISTED = "<Contents><Key>{}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"


class Bucket:
    def __init__(self, is_atomic: bool) -> None:
        self.objects: dict[str, bytes] = {}
        self.claims = 0
        self._is_atomic = is_atomic
        self._checked = 0
        self._news = threading.Condition()

    def claim(self, name: str, content: bytes) -> bool:
        with self._news:
            self.claims += 1
            if name in self.objects:
                return False
            self._checked += 1
            self._news.notify_all()
            if not self._is_atomic:
                # Lets go of the lock: a claim of the same moment is checked before this one is written.
                before = self._checked
                self._news.wait_for(lambda: self._checked > before, 0.05)
            self.objects[name] = content
            return True


@contextmanager
def claim_server(*, is_atomic: bool) -> Iterator[tuple[str, Bucket]]:
    """Its address, and what is in it."""
    bucket = Bucket(is_atomic)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["If-None-Match"] == "*"
            self._answer(200 if bucket.claim(self.path, content) else 412)

        def do_GET(self) -> None:
            at = urlsplit(self.path)
            if "list-type" in at.query:
                names = (name.removeprefix("/bucket/") for name in bucket.objects)
                listed = "".join(LISTED.format(name) for name in names)
                self._answer(200, f"<ListBucketResult>{listed}</ListBucketResult>".encode())
            else:
                found = bucket.objects.get(self.path)
                self._answer(404 if found is None else 200, found or b"")

        def do_DELETE(self) -> None:
            bucket.objects.pop(self.path, None)
            self._answer(204)

        def log_message(self, *_: object) -> None:
            """Tests want quiet."""

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bucket
        finally:
            server.shutdown()
            thread.join(10)
