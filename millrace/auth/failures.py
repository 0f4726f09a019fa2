"""How many refused requests the audit log takes: some from each address and some from all, so that nobody can fill it.

What is left out is counted, and the next entry that is written says how many there were."""

import threading
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

WINDOW_SECONDS = 60.0
MOST_OF_ADDRESS = 10
MOST_OF_ALL = 300
MOST_ADDRESSES = 10_000


class FailureLimit:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._since, self._written = now(), 0
        self._of: dict[str, int] = {}
        self._left_out = 0

    def take(self, address: str) -> int | None:
        """None if the entry is to be left out, else how many were since the last one."""
        block = _block(address)
        with self._lock:
            if self._now() - self._since >= WINDOW_SECONDS:
                self._since, self._written = self._now(), 0
                self._of.clear()
            before = self._of.get(block, 0)
            is_full = before >= MOST_OF_ADDRESS or self._written >= MOST_OF_ALL or len(self._of) >= MOST_ADDRESSES
            if is_full:
                self._left_out += 1
                return None
            self._of[block] = before + 1
            self._written += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


def _block(address: str) -> str:
    """Whoever has one IPv6 address has all of its /64."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((known, 64), strict=False)) if isinstance(known, IPv6Address) else address
