"""A SOCKS5 server for drivers in a JVM: names and addresses in, connections to judged addresses out."""

import asyncio
import os
import socket
import struct
import threading
from functools import lru_cache

from millrace.model.errors import Invalid, MillraceError
from millrace.outbound.addresses import Judged
from millrace.outbound.loopback import both, connect, listen, pump

_VERSION, _NO_LOGIN, _CONNECT = 5, 0, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _FORBIDDEN, _UNREACHABLE, _NOT_SUPPORTED = 0, 2, 4, 7

_starting = threading.Lock()


def socks_server(judged: Judged) -> "SocksServer":
    """One for all callers in this process that judge alike. It ends with the process."""
    with _starting:
        return _socks_server(os.getpid(), judged)


@lru_cache(maxsize=64)
def _socks_server(_process: int, judged: Judged) -> "SocksServer":
    return SocksServer(judged)


class SocksServer:
    """`port` is on loopback; `asked` counts the connections that clients asked for."""

    def __init__(self, judged: Judged) -> None:
        self._judged = judged
        self.asked = 0
        self.port = listen(self._serve).port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await _serve(self._judged, reader, writer)


async def _serve(judged: Judged, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    version, methods = await reader.readexactly(2)
    if version != _VERSION:
        return
    await reader.readexactly(methods)
    writer.write(bytes((_VERSION, _NO_LOGIN)))
    _, command, _, kind = await reader.readexactly(4)
    host = await _host(reader, kind)
    (port,) = struct.unpack(">H", await reader.readexactly(2))
    if command != _CONNECT:
        _answer(writer, _NOT_SUPPORTED)
        return
    try:
        remote = await connect(judged, host, port)
    except Invalid:
        _answer(writer, _FORBIDDEN)
        return
    except (MillraceError, OSError):
        _answer(writer, _UNREACHABLE)
        return
    try:
        _answer(writer, _GRANTED)
        await both(pump(reader, remote[1]), pump(remote[0], writer))
    finally:
        remote[1].close()


async def _host(reader: asyncio.StreamReader, kind: int) -> str:
    if kind == _IPV4:
        return socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
    if kind == _IPV6:
        return socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        return (await reader.readexactly(length)).decode("ascii", "replace")
    raise ConnectionError(f"There are no addresses of kind {kind}.")


def _answer(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(struct.pack(">BBBB4sH", _VERSION, code, 0, _IPV4, bytes(4), 0))
