"""HTTP as uvicorn speaks it, with bounds for what no endpoint sees: a request's head, and the rest of a body whose answer is
already sent."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 256 << 10
HEAD_SECONDS = 30.0
# A sender may hear its answer only after it has sent all of its body.
REST_SECONDS = 30.0
_TOO_LARGE = {
    "type": "urn:millrace:too_large",
    "title": "too large",
    "status": 431,
    "code": "too_large",
    "detail": f"The head of the request takes more than {HEAD_BYTES:,} bytes.",
    "remedy": "Send fewer or shorter headers.",
}


class BoundedHttp(HttpToolsProtocol):
    """The parser keeps an unfinished head in memory, however long it is."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head = True
        self._in_body = False
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end_after(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_after(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._in_body, self._head_bytes = True, True, 0
        self._end_after(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_after(None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._end_after(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._end_after(REST_SECONDS)

    def _end_after(self, seconds: float | None) -> None:
        """Closes the connection then, unless it is called again; None: never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)

    def _refuse_head(self) -> None:
        text = json.dumps(_TOO_LARGE).encode()
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
        self.transport.write(b"%sconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (head, len(text), text))
        self.transport.close()
