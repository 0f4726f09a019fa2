"""A PostgreSQL that only listens: it asks every client for its password in clear text, remembers it and lets nobody in."""

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_WITHOUT_TLS = {80877103, 80877104}
_ASK_PASSWORD = b"R" + struct.pack("!II", 8, 3)
_REFUSAL = b"SFATAL\0C28P01\0Mnobody comes in\0\0"


@dataclass
class FakePostgres:
    port: int = 0
    passwords: list[str] = field(default_factory=list)
    connections: int = 0


@contextmanager
def fake_postgres() -> Iterator[FakePostgres]:
    fake = FakePostgres()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            fake.connections += 1
            while (head := self.rfile.read(8)) and struct.unpack("!II", head)[1] in _WITHOUT_TLS:
                self.wfile.write(b"N")
            if len(head) < 8:
                return
            self.rfile.read(struct.unpack("!II", head)[0] - 8)
            self.wfile.write(_ASK_PASSWORD)
            if self.rfile.read(1) == b"p":
                (length,) = struct.unpack("!I", self.rfile.read(4))
                fake.passwords.append(self.rfile.read(length - 4).rstrip(b"\0").decode())
            self.wfile.write(b"E" + struct.pack("!I", len(_REFUSAL) + 4) + _REFUSAL)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        fake.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join(20)
