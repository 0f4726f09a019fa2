"""Ends connections whose peer does not read what it was sent. A transport that is closed waits for that without an end."""

import asyncio
import fcntl
import socket
import struct
import termios

# A reader may stop for a while: a person reads the first page of an export.
UNREAD_SECONDS = 300.0


class UnreadWatch:
    """Between `start` and `stop` nothing may be written: then the unread bytes become fewer if the peer reads any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop, self._transport = loop, transport
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.stop()
        self._look_after(self._unread())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _look_after(self, unread: int) -> None:
        self._timer = self._loop.call_later(UNREAD_SECONDS, self._look, unread)

    def _look(self, before: int) -> None:
        unread = self._unread()
        if unread < before:
            self._look_after(unread)
        else:
            self._transport.abort()

    def _unread(self) -> int:
        """What waits in this process, and what the system has sent without a receipt."""
        return self._transport.get_write_buffer_size() + _unacknowledged(self._transport.get_extra_info("socket"))


def _unacknowledged(link: socket.socket | None) -> int:
    if link is None or link.fileno() < 0:
        return 0
    return int(struct.unpack("i", fcntl.ioctl(link.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
