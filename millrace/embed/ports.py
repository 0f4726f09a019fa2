"""Loopback ports for servers: how many in, distinct numbers nobody uses out.

Never from the kernel's range for outgoing connections: one of those could sit on a port while its server restarts."""

import random
import socket
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_240

_OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_OUTGOING_START = 32_768


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports that were free a moment ago."""
    candidates = random.SystemRandom().sample(range(LOWEST_PORT, _outgoing_start()), k=1_000)
    found: list[int] = []
    for port in candidates:
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise OSError(f"no {count} free ports on {LOOPBACK} between {LOWEST_PORT} and {_outgoing_start()}")


def is_free(port: int) -> bool:
    """Whether a server could listen there now; connections that are winding down do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts(port: int, timeout_seconds: float = 0.5) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout_seconds):
            return True
    except OSError:
        return False


def listens(pid: int, port: int) -> bool:
    """Whether this process, and not another one, is the one that listens there."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in connections)


def _outgoing_start() -> int:
    try:
        start = int(_OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_OUTGOING_START
    return start if start >= LOWEST_PORT + 1_000 else _USUAL_OUTGOING_START
