"""A receiver of webhooks: keeps every delivery with its headers, to check signatures. Now and then it refuses."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from checker.board import Lines

KEPT_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
REFUSE_EVERY = 17


class Receiver:
    """`secrets` are known only after the subscription was answered; deliveries before that cannot be."""

    def __init__(self, lines: Lines) -> None:
        self.secrets: dict[str, str] = {}
        self.ids: set[str] = set()
        receiver = self
        taken = {"requests": 0}
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    taken["requests"] += 1
                    refuses = taken["requests"] % REFUSE_EVERY == 0
                if not refuses:
                    receiver._keep(
                        lines, self.path.strip("/"), body, {h: self.headers.get(h, "") for h in KEPT_HEADERS}
                    )
                self.send_response(503 if refuses else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    def _keep(self, lines: Lines, tenant: str, body: bytes, headers: dict[str, str]) -> None:
        event = json.loads(body)
        self.ids.add(event["id"])
        secret = self.secrets.get(tenant, "")
        lines.add(
            {
                "tenant": tenant,
                "event": event,
                "headers": headers,
                "body": body.decode(),
                "secret": secret,
                "t_wall": time.time(),
            }
        )

    def url(self, tenant: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{tenant}"

    def close(self) -> None:
        self._server.shutdown()
