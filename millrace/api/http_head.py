"""HTTP as uvicorn speaks it, with bounds for what no endpoint sees: a request's head, its trailers, the rest of a body whose
answer is already sent, requests that wait for earlier answers, and answers that nobody reads."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millrace.api.unread import UnreadWatch

HEAD_BYTES = 256 << 10
HEAD_SECONDS = 30.0
# A sender may hear its answer only after it has sent all of its body.
REST_SECONDS = 30.0
# Requests of one connection that may wait for the answers before theirs.
MOST_WAITING = 16
_TOO_LARGE = {
    "type": "urn:millrace:too_large",
    "title": "too large",
    "status": 431,
    "code": "too_large",
    "detail": f"The head of the request takes more than {HEAD_BYTES:,} bytes.",
    "remedy": "Send fewer or shorter headers.",
}


class BoundedHttp(HttpToolsProtocol):
    """The parser keeps an unfinished head in memory, however long it is, and every request that it finds behind it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head = True
        self._in_body = False
        # No further request of this connection counts.
        self._is_full = False
        self._head_bytes = 0
        self._bytes_since_body = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: UnreadWatch

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread = UnreadWatch(self.loop, transport)
        self._end_after(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_after(None)
        self._unread.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._unread.stop()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._is_full:
            return
        self._bytes_since_body += len(data)
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()
        elif self._in_body and self._bytes_since_body > HEAD_BYTES:
            # Trailers, or a chunk's extensions: nothing needs them.
            self._close()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            # The connection ends after the last request that was taken. The client sends the others again.
            self.pipeline[0][0].keep_alive = False
            self._is_full = True
        if self._is_full:
            return
        super().on_message_begin()
        self._in_head, self._in_body, self._head_bytes = True, True, 0
        self._end_after(HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        if not self._is_full:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body would otherwise count as headers of the request, which is checked already.
        if self._in_head and not self._is_full:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_full:
            return
        self._in_head, self._bytes_since_body = False, 0
        self._end_after(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._is_full:
            return
        self._bytes_since_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_full:
            return
        self._in_body = False
        self._end_after(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._unread.start()
        elif self._in_body and self.cycle.response_complete:
            self._end_after(REST_SECONDS)

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._unread.start()

    def _end_after(self, seconds: float | None) -> None:
        """Closes the connection then, unless it is called again; None: never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._close)

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
            self._unread.start()

    def _refuse_head(self) -> None:
        text = json.dumps(_TOO_LARGE).encode()
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
        self.transport.write(b"%sconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (head, len(text), text))
        self._close()
