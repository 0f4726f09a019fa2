"""A door in front of a server on loopback that a test can shut: connections are taken, and nothing is answered."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 1 << 16


class Relay:
    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._is_open = threading.Event()
        self._is_open.set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    def close(self) -> None:
        self._is_over.set()
        self._is_open.set()
        self._listening.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                theirs, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(theirs,), daemon=True).start()

    def _pass_on(self, theirs: socket.socket) -> None:
        with (
            suppress(OSError),
            theirs,
            socket.create_connection(("127.0.0.1", self._target)) as ours,
            selectors.DefaultSelector() as both,
        ):
            both.register(theirs, selectors.EVENT_READ, ours)
            both.register(ours, selectors.EVENT_READ, theirs)
            while not self._is_over.is_set():
                for key, _ in both.select(1.0):
                    self._is_open.wait()
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    piece = source.recv(PIECE_BYTES)
                    if not piece:
                        return
                    target.sendall(piece)


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    door = Relay(port)
    try:
        yield door
    finally:
        door.close()
