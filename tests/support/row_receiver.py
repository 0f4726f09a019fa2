"""A receiver of the webhook sink as docs/sinks.md asks for, with nothing of ours: `with row_receiver() as receiver`.

Of each key it keeps the greatest version, of tables without a key each row once; it forgets what lies at or below the
greatest floor it was told, takes no id twice, and refuses what is not signed. `answers` are given first, one a request."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.hook_target import Received

SECRET = "whsec_bWlsbHJhY2UtbWlsbHJhY2UtbWlsbHJhY2U="
REFERENCE = "env:MILLRACE_SECRET_TEST_WEBHOOK"


@dataclass
class Table:
    floor: int = 0
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, key: list[str], row: dict[str, Any]) -> None:
        place = json.dumps([row[name] for name in key] if key else [row["_version"], row["_row"]])
        there = self.rows.get(place)
        if there is None or row["_version"] > there["_version"]:
            self.rows[place] = row

    def shown(self) -> list[dict[str, Any]]:
        return [row for row in self.rows.values() if not row["_deleted"] and row["_version"] > self.floor]


@dataclass
class RowReceiver:
    url: str = ""
    read_url: str = ""
    answers: list[Any] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, received: Received) -> tuple[int, dict[str, str]]:
        with self.lock:
            self.received.append(received)
            if not received.is_signed_with(SECRET):
                return 401, {}
            if self.answers:
                told = self.answers.pop(0)
                return told if isinstance(told, tuple) else (told, {})
            if "millrace-table" in received.headers and received.id not in self.ids:
                self._take(received)
                self.ids.add(received.id)
            return 204, {}

    def _take(self, received: Received) -> None:
        table = self.tables.setdefault(received.headers["millrace-table"], Table())
        table.floor = max(table.floor, int(received.headers["millrace-floor"]))
        for line in received.body.splitlines():
            table.take(json.loads(received.headers["millrace-key"]), json.loads(line))

    def shown(self, table: str) -> bytes:
        with self.lock:
            return b"".join(json.dumps(row).encode() + b"\n" for row in self.tables.get(table, Table()).shown())


@contextmanager
def row_receiver() -> Iterator[RowReceiver]:
    os.environ[REFERENCE.partition(":")[2]] = SECRET
    receiver = RowReceiver()

    class Handler(_Handler):
        keeper = receiver

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{server.server_port}/rows"
        receiver.read_url = f"http://127.0.0.1:{server.server_port}/shown"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join(20)


class _Handler(BaseHTTPRequestHandler):
    keeper: RowReceiver

    def log_message(self, format: str, *args: object) -> None:
        """Tests want quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, told = self.keeper.answer(Received(headers, body, 0.0))
        self.send_response(status)
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.keeper.shown(self.headers["millrace-table"]))
