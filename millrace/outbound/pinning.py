"""Connections that go to the very address that was judged: pools of them, for callers in threads and in an event loop.

The name is resolved and judged where the socket is opened; TLS is made out to the name, whatever its address. Connections
are kept by name, so two names may share an address, but not a connection. Proxies and redirects are never followed."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import httpcore2

from millrace.outbound.unhurried import TimedStream

Addresses = Callable[[str], Sequence[str]]
"""The IP addresses of a host that we may connect to; raises if there are none."""

CONNECT_SECONDS = 5.0
KEPT_CONNECTIONS, KEPT_SECONDS = 32, 5.0


class _Pinned(httpcore2.NetworkBackend):
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(self, host: str, port: int, *rest: Any, **options: Any) -> httpcore2.NetworkStream:
        failed: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in self._addresses(host):
            try:
                return TimedStream(self._sockets.connect_tcp(address, port, *rest, **options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failure:
                failed = failure
        raise failed


class _AsyncPinned(httpcore2.AsyncNetworkBackend):
    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *rest: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        failed: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in await asyncio.to_thread(self._addresses, host):
            try:
                return await self._sockets.connect_tcp(address, port, *rest, **options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failure:
                failed = failure
        raise failed


@cache
def _tls(ca_file: Path | None = None) -> ssl.SSLContext:
    return httpcore2.default_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)


@lru_cache(maxsize=64)
def pool(addresses: Addresses, ca_file: Path | None = None) -> httpcore2.ConnectionPool:
    """One for all callers in this process that judge and trust alike."""
    return httpcore2.ConnectionPool(
        _tls(ca_file),
        max_connections=None,
        max_keepalive_connections=KEPT_CONNECTIONS,
        keepalive_expiry=KEPT_SECONDS,
        network_backend=_Pinned(addresses),
    )


def async_pool(addresses: Addresses) -> httpcore2.AsyncConnectionPool:
    """For one request: an event loop may be over after it."""
    return httpcore2.AsyncConnectionPool(_tls(), max_keepalive_connections=0, network_backend=_AsyncPinned(addresses))


def extensions(host: str, answer_seconds: float) -> dict[str, Any]:
    """What the pools have to know about a request: how long to wait, and whose certificate to ask for."""
    timeout = {"connect": CONNECT_SECONDS, "read": answer_seconds, "write": answer_seconds, "pool": answer_seconds}
    return {"timeout": timeout, "sni_hostname": host.rstrip(".")}
