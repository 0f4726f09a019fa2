"""Where a tenant may send us: an address on the open internet, or one in a network that the operator has allowed.

A name is judged by what it resolves to at that moment, and the caller connects to the very address that was judged: a name
that points elsewhere a moment later gains nothing. Private, loopback, link-local, metadata and other special addresses are
refused, also when they hide inside an IPv6 address. This is the only module that resolves names."""

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import SplitResult, urlsplit

from millrace.model.addresses import is_permitted, literal
from millrace.model.errors import Invalid, Unavailable
from millrace.observe import log

REMEDY = "Use an address on the internet, or have the operator allow the network (MILLRACE_API__PRIVATE_TARGETS)."
LONGEST_URL = 2000
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII | re.IGNORECASE)
# What some resolvers read as an IPv4 address in disguise: 2130706433, 0177.0.0.1, 0x7f.1, 127.1.
_NUMBERS = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?", re.ASCII | re.IGNORECASE)
# Everybody knows where these names lead.
_LOOPBACK = re.compile(r"(.*\.)?localhost\.?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """`host` is a name or a literal address without brackets; `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What goes into the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """The parts of an http(s) URL, unless something in it could be read in two ways."""
    if len(url) > LONGEST_URL or not url.isascii() or any(sign <= " " or sign in '\\"<>^`{|}\x7f' for sign in url):
        raise _bad(url, f"It may have up to {LONGEST_URL} ASCII characters, no spaces and no backslashes.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad(url) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _bad(url)
    if "@" in parts.netloc:
        raise _bad(url, "Leave user and password out: requests are signed instead.")
    _check_host(url, parts)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, parts.hostname, _PORTS[parts.scheme] if port is None else port, path)


def _check_host(url: str, parts: SplitResult) -> None:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        if literal(host) is None or "%" in host:
            raise _bad(url)
    elif not _HOST.fullmatch(host) or (_NUMBERS.fullmatch(host) and literal(host) is None):
        raise _bad(url, "Write an IPv4 address as four decimal numbers.")


def _bad(url: str, remedy: str = "Write https://HOST/PATH.") -> Invalid:
    return Invalid(f"{url[:100]!r} is not an address to send to.", remedy=remedy, code="bad_url")


@dataclass(frozen=True, slots=True)
class Judged:
    """Judges hosts by one list of allowed networks: a function that can be pickled and compared."""

    allowed: tuple[IPv4Network | IPv6Network, ...] = ()

    def __call__(self, host: str) -> list[str]:
        """What the host stands for now, as far as we may connect to it; at least one address, or an error that says why."""
        found = resolve(host)
        good = [address for address in found if self.is_allowed(address)]
        if not good:
            raise _not_public(host, found)
        return good

    def connect(self, host: str, port: int, seconds: float) -> socket.socket:
        """To the first address that takes a connection; the error of the last if none does."""
        *others, last = self(host)
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, port), seconds)
        return socket.create_connection((last, port), seconds)

    def is_allowed(self, address: str) -> bool:
        known = literal(address)
        return known is not None and is_permitted(known, self.allowed)


def _not_public(host: str, found: list[str]) -> Invalid | Unavailable:
    """To a tenant, a name of the platform's own network reads like one that nobody knows. The log tells the operator."""
    if literal(host) is not None or _LOOPBACK.fullmatch(host) or _NUMBERS.fullmatch(host):
        return Invalid(f"{host} is not a public address.", remedy=REMEDY, code="private_target")
    log("private_name", host=host, addresses=found)
    return _unresolved(host)


def _unresolved(host: str) -> Unavailable:
    return Unavailable(f"{host} does not resolve to public addresses.", remedy=REMEDY, code="unresolved")


def resolve(host: str) -> list[str]:
    address = literal(host)
    if address is not None:
        return [str(address)]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failed:
        log("unresolved_name", host=host[:LONGEST_URL], reason=str(failed))
        raise _unresolved(host) from None
    # A scope such as %eth0 says on which link: no such address is public. Each address comes once.
    return list(dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in found))
