"""The HTTP session of Google's library: credentials in, a session out that connects only to addresses that were judged.

The library may ask any host that a server's answer names. Each connection resolves, judges and connects in one step.
Redirects and proxies are not followed, and nobody is asked for tokens."""

import socket
from typing import Any, NoReturn

from google.auth.exceptions import TransportError
from google.auth.transport.requests import AuthorizedSession
from requests import Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from millrace.model.sinks import Fault, SinkFailed
from millrace.outbound.addresses import Judged

CONNECT_SECONDS = 5.0


def pinned_session(credentials: Any, permitted: Judged) -> AuthorizedSession:
    session = _Session(credentials, auth_request=_ask_nobody)  # type: ignore[no-untyped-call]
    # No proxies, no .netrc, no certificates from variables.
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(permitted))
    return session


class _Session(AuthorizedSession):
    def get_redirect_target(self, resp: Response) -> None:
        """A 308 without a location belongs to an upload in parts."""
        if resp.is_redirect:
            resp.close()
            where = str(resp.url).partition("?")[0]
            raise SinkFailed(
                f"{where} answered {resp.status_code}, a redirect to {resp.headers['location']!r:.100}.",
                Fault.SINK,
                remedy="Redirects are not followed: give the address it points to.",
            )


class _Adapter(HTTPAdapter):
    def __init__(self, permitted: Judged) -> None:
        self._permitted = permitted
        super().__init__()

    def init_poolmanager(self, *sizes: Any, **options: Any) -> None:
        super().init_poolmanager(*sizes, **options)
        manager: PoolManager = self.poolmanager
        manager.pool_classes_by_scheme = _pool_classes(self._permitted)


def _pool_classes(permitted: Judged) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, permitted)

    class Encrypted(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self, permitted)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    return {"http": PlainPool, "https": EncryptedPool}


def _connect(connection: HTTPConnection, permitted: Judged) -> socket.socket:
    try:
        found = permitted.connect(connection.host.strip("[]"), connection.port, CONNECT_SECONDS)
    except OSError as failed:
        raise NewConnectionError(connection, f"{connection.host} takes no connection: {failed}") from failed
    if isinstance(connection.timeout, float | int):
        found.settimeout(connection.timeout)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _ask_nobody(*_: Any, **__: Any) -> NoReturn:
    """Tokens are signed in this process. A key file could name any address to ask for one."""
    raise TransportError("Nobody is asked for tokens.")  # type: ignore[no-untyped-call]
