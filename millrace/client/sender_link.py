"""One WebSocket connection of a sender: frames of rows out, the platform's frames in. Its errors become the SDK's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import orjson
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from millrace.client.endpoint import Endpoint
from millrace.client.errors import Problem, Unreachable, problem_from
from millrace.client.resource import at
from millrace.model.errors import Invalid

OPEN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
_TOO_BIG = 1009


class SenderLink:
    """`send` and `frames` may be used by two threads."""

    def __init__(self, endpoint: Endpoint, socket: ClientConnection) -> None:
        self._endpoint = endpoint
        self._socket = socket

    def send(self, frame: bytes) -> None:
        try:
            self._socket.send(frame)
        except ConnectionClosed as closed:
            raise self._broken(closed) from closed

    def frames(self) -> Iterator[dict[str, Any]]:
        """Until the connection is closed; raises Unreachable if it broke."""
        try:
            for message in self._socket:
                yield orjson.loads(message)
        except ConnectionClosed as closed:
            raise self._broken(closed) from closed

    def close(self) -> None:
        self._socket.close()

    def _broken(self, closed: ConnectionClosed) -> Problem | Unreachable:
        if closed.rcvd is not None and closed.rcvd.code == _TOO_BIG:
            return Problem(413, "A frame is too large for the platform.", code="too_large")
        return Unreachable(self._endpoint.url, str(closed) or "the connection broke")


@contextmanager
def linked(endpoint: Endpoint, tenant: str, table: str, sender: str, span: str | None) -> Iterator[SenderLink]:
    """An open connection, or the problem the platform answered with."""
    query = urlencode({"stream": sender, **({"span": span} if span else {})})
    route = f"{at('tenants', tenant, 'tables', table, 'stream')}?{query}"
    try:
        # The platform compresses rows itself. Its frames are small, except that each rejected row is sent whole.
        opening = connect(
            f"ws{endpoint.url.removeprefix('http')}{route}",
            additional_headers={"Authorization": f"Bearer {endpoint.token}"},
            ssl=endpoint.tls(),
            compression=None,
            proxy=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=None,
        )
    except InvalidStatus as refused:
        raise problem_from(refused.response.status_code, bytes(refused.response.body or b"")) from refused
    except InvalidURI as refused:
        raise Invalid(f"{endpoint.url!r} is not an address.", remedy="Write http://HOST:PORT.") from refused
    except (OSError, WebSocketException) as failed:
        raise Unreachable(endpoint.url, str(failed) or type(failed).__name__) from failed
    with opening as socket:
        yield SenderLink(endpoint, socket)
