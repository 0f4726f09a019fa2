"""Listeners on loopback for libraries that connect by themselves: they connect here, and we connect to the judged address.

One event loop in a thread of its own serves all of them. Only this process can connect: others are turned away."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millrace.outbound.addresses import Judged

HOST = "127.0.0.1"
CONNECT_SECONDS = 5.0
BUFFER_BYTES = 1 << 20
PIECE_BYTES = 256 << 10
# Each looks up one name, which may take as long as its name server likes.
LOOK_UPS_AT_ONCE = 32

_starting = threading.Lock()

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listener:
    port: int
    server: asyncio.Server

    def close(self) -> None:
        self.server.get_loop().call_soon_threadsafe(self.server.close)


def listen(serve: Serve) -> Listener:
    """For callers outside the event loop."""
    return asyncio.run_coroutine_threadsafe(listening(serve), event_loop()).result()


async def listening(serve: Serve) -> Listener:
    """Each connection is closed when `serve` returns. What `serve` raises ends its connection only."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if is_ours(writer.get_extra_info("peername")):
                await serve(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, HOST, 0, limit=BUFFER_BYTES)
    return Listener(server.sockets[0].getsockname()[1], server)


def event_loop() -> asyncio.AbstractEventLoop:
    """That of this process: a forked one has no threads of its parent's."""
    with _starting:
        return _event_loop(os.getpid())


@lru_cache(maxsize=1)
def _event_loop(_process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(LOOK_UPS_AT_ONCE, "look-up"))
    threading.Thread(target=loop.run_forever, name="loopback", daemon=True).start()
    return loop


async def connect(judged: Judged, host: str, port: int, tls: ssl.SSLContext | None = None) -> Streams:
    """To the first judged address that takes a connection. TLS checks the host's name. Raises OSError if none does, and
    what `judged` raises."""
    name = host.rstrip(".") if tls is not None else None
    failed: OSError = ConnectionError(f"{host} has no address")
    for address in await asyncio.to_thread(judged, host):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name, limit=BUFFER_BYTES)
        except TimeoutError:
            failed = TimeoutError(f"no connection within {CONNECT_SECONDS:g} s")
        except OSError as failure:
            failed = failure
    raise failed


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything, then the end."""
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def both(one: Awaitable[None], other: Awaitable[None]) -> None:
    """Until both are done, or one fails."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def is_ours(peer: Any) -> bool:
    """Whether this process holds the socket at the other end."""
    for name in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):
            if _address_of(int(name)) == (peer[0], peer[1]):
                return True
    return False


def _address_of(descriptor: int) -> tuple[str, int]:
    """The local address of a TCP socket. The descriptor stays with its owner."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6):
            raise ValueError(descriptor)
        host, port = borrowed.getsockname()[:2]
        return host.removeprefix("::ffff:"), port
    finally:
        borrowed.detach()
