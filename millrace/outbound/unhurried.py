"""Connections whose answers must be over in time: a server that sends a byte now and then keeps nobody waiting for ever."""

import ssl
import time
from typing import Any

import httpcore2

# An answer may take this long after the last byte of its request, and longer by what has arrived.
ANSWER_SECONDS = 120.0
LEAST_BYTES_PER_SECOND = 64 << 10


class Dripping(httpcore2.ReadTimeout):
    """Bytes come, but too slowly."""


class TimedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self._asked = time.monotonic()
        self._size = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._asked + ANSWER_SECONDS + self._size / LEAST_BYTES_PER_SECOND - time.monotonic()
        try:
            piece = self._stream.read(max_bytes, max(0.001, left if timeout is None else min(left, timeout)))
        except httpcore2.ReadTimeout:
            if timeout is None or left < timeout:
                waited = time.monotonic() - self._asked
                raise Dripping(f"{self._size} bytes came in {waited:.0f} s") from None
            raise
        if left <= 0:
            raise Dripping(f"{self._size} bytes came in {time.monotonic() - self._asked:.0f} s")
        self._size += len(piece)
        return piece

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._asked, self._size = time.monotonic(), 0

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return TimedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
