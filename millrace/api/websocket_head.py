"""WebSockets as uvicorn speaks them, with bounds for what no endpoint sees: a handshake that fails or does not end, and
answers to pings that nobody reads."""

import asyncio
from asyncio.transports import BaseTransport
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from millrace.api.unread import UnreadWatch

HANDSHAKE_SECONDS = 30.0
# What may wait to be sent when the peer asks for the answer to one more ping.
MOST_UNSENT_BYTES = 1 << 20


class BoundedWebSocket(WebSocketsSansIOProtocol):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle
        self._unread: UnreadWatch

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._unread = UnreadWatch(self.loop, self.transport)
        self._deadline = self.loop.call_later(HANDSHAKE_SECONDS, self._end_handshake)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._unread.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # The library has an answer to a head that it does not take. uvicorn does not send it.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
            self._unread.start()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        if self.transport.is_closing():
            self._unread.start()

    def _end_handshake(self) -> None:
        if not self.handshake_complete:
            self.transport.close()
            self._unread.start()
