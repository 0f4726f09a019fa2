"""A bucket that answers with whatever a test wants: objects of one table, a listing that lies."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.hostile_tables import HostileTable

LISTED = "<Contents><Key>{}</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"


class HostileBucket:
    """`prefix` is where the table is, in the bucket `b`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.table = HostileTable("", {})
        self.endpoint = ""

    def answer(self, path: str) -> bytes | None:
        place = urlsplit(path)
        if "list-type" not in place.query:
            return self.table.objects.get(unquote(place.path).removeprefix(f"/b/{self.prefix}/"))
        if self.table.listing is not None:
            return self.table.listing
        within = parse_qs(place.query)["prefix"][0].removeprefix(f"{self.prefix}/")
        sizes = {**{name: len(data) for name, data in self.table.objects.items()}, **self.table.sizes}
        listed = (LISTED.format(f"{self.prefix}/{name}", sizes[name]) for name in sizes if name.startswith(within))
        return f"<ListBucketResult>{''.join(listed)}</ListBucketResult>".encode()


@contextmanager
def hostile_bucket(prefix: str) -> Iterator[HostileBucket]:
    bucket = HostileBucket(prefix)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.begin_answer()

        def begin_answer(self) -> bytes | None:
            found = bucket.answer(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            return found

        def do_GET(self) -> None:
            found = self.begin_answer()
            try:
                self.wfile.write(found or b"")
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Tests want quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        bucket.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield bucket
        finally:
            server.shutdown()
            thread.join(10)
