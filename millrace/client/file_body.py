"""Sends a range of a file as the body of one PATCH: the kernel copies file to socket, Python never touches the bytes.

Returns the offset that the platform confirms. Raises its problem, or Unreachable when the connection broke."""

import http.client
import select
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from typing import BinaryIO, Literal, Protocol
from urllib.parse import urlsplit

from millrace.client.endpoint import Endpoint
from millrace.client.errors import Unreachable, problem_from

PIECE_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60.0

Progress = Callable[[int], None]
"""Called with the number of the file's bytes sent so far."""


class Content(Protocol):
    """A path, or what can be opened and read at any offset like one."""

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


def send_range(endpoint: Endpoint, import_id: str, path: Content, offset: int, length: int, progress: Progress) -> int:
    """Bytes offset to length of the file; the new offset."""
    with path.open("rb") as file, closing(_connect(endpoint)) as connection:
        try:
            _send_head(connection, endpoint, import_id, offset, length)
            _send_body(connection, file, offset, length, progress)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as failed:
            raise Unreachable(endpoint.url, failed or type(failed).__name__) from failed
    if response.status >= HTTPStatus.BAD_REQUEST:
        raise problem_from(response.status, body)
    return int(response.getheader("Upload-Offset", str(length)))


def _connect(endpoint: Endpoint) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint.url)
    host, tls = parts.hostname or "", endpoint.tls()
    if tls is None:
        return http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)
    return http.client.HTTPSConnection(host, parts.port, timeout=_TIMEOUT_SECONDS, context=tls)


def _send_head(
    connection: http.client.HTTPConnection, endpoint: Endpoint, import_id: str, offset: int, length: int
) -> None:
    connection.putrequest("PATCH", f"{urlsplit(endpoint.url).path}/v1/uploads/{import_id}", skip_accept_encoding=True)
    connection.putheader("Authorization", f"Bearer {endpoint.token}")
    connection.putheader("Tus-Resumable", "1.0.0")
    connection.putheader("Content-Type", "application/offset+octet-stream")
    connection.putheader("Upload-Offset", str(offset))
    connection.putheader("Content-Length", str(length - offset))
    connection.endheaders()


def _send_body(
    connection: http.client.HTTPConnection, file: BinaryIO, offset: int, length: int, progress: Progress
) -> None:
    """Stops early when the platform has answered: it takes no more of this file."""
    connected = connection.sock
    while offset < length and not _has_answered(connection):
        try:
            sent = connected.sendfile(file, offset, min(PIECE_BYTES, length - offset))
        except (BrokenPipeError, ConnectionResetError):
            # The answer that came before the reset may still be waiting to be read.
            return
        if sent == 0:
            raise OSError(f"{file.name} became shorter while it was sent")
        offset += sent
        progress(offset)


def _has_answered(connection: http.client.HTTPConnection) -> bool:
    if isinstance(connection, http.client.HTTPSConnection):
        # TLS sends records of its own, so a readable socket proves nothing.
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
