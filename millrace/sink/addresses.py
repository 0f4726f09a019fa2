"""Where a sink may connect to: a target's settings in, the hosts they name and the addresses these stand for out.

The rule is that of webhooks: public addresses, and networks that the operator allows. A setting that names hosts says so in
its sink's schema: `format` is `hostname`, `host-port` or `uri`. A sink connects to the very address that was judged."""

import socket
from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from millrace.model.addresses import Networks, is_permitted, literal
from millrace.model.errors import Invalid, Unavailable
from millrace.model.sinks import SinkTarget

# URIs of other schemes name a bucket or a path, not a host.
_WITH_HOST = ("http", "https", "hdfs", "webhdfs", "swebhdfs")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_allowed: Networks = ()


def allow(networks: Iterable[object]) -> None:
    """Told once to each process that opens sinks: what the operator allows besides public addresses."""
    global _allowed
    _allowed = tuple(ip_network(str(network)) for network in networks)


def permitted(host: str) -> list[str]:
    """What the host stands for now, as far as we may connect to it; at least one address, or an error that says why."""
    found = _resolve(host)
    good = [address for address in found if is_permitted(ip_address(address), _allowed)]
    if not good:
        raise Invalid(
            f"{host} is at {found[0]}, which is not a public address.",
            remedy="Use an address on the internet, or have the operator allow the network (MILLRACE_API__PRIVATE_TARGETS).",
            code="private_target",
        )
    return good


def refuse_private_host(host: str) -> None:
    """For a client that resolves names itself: each address that the host stands for must be one we may connect to."""
    for address in _resolve(host):
        permitted(address)


def is_allowed(address: str) -> bool:
    known = literal(address)
    return known is not None and is_permitted(known, _allowed)


def refuse_private(target: SinkTarget, schema: dict[str, Any]) -> None:
    """Judges every host that the target names; one that cannot be resolved now may be so later."""
    for host, _ in places(target, schema):
        try:
            permitted(host)
        except Unavailable:
            continue


def places(target: SinkTarget, schema: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Every host, with its port where that is known."""
    described: dict[str, Any] = schema.get("properties", {})
    usual = described.get("port", {}).get("default")
    port = target.settings.get("port", usual)
    found = []
    for name, said in described.items():
        for form, value in _values(said, target.settings.get(name)):
            place = _place(form, value, port if isinstance(port, int) else None)
            if place is not None:
                found.append(place)
    return found


def _values(said: dict[str, Any], given: object) -> Iterator[tuple[str, str]]:
    form = said.get("format") or said.get("items", {}).get("format")
    if form is None or given is None:
        return
    for value in given if isinstance(given, list) else [given]:
        for one in str(value).split(",") if form == "host-port" else [str(value)]:
            yield form, one.strip()


def _place(form: str, value: str, port: int | None) -> tuple[str, int | None] | None:
    if form == "hostname":
        return value, port
    if form == "host-port":
        parts = urlsplit(f"//{value}")
        return parts.hostname or value, parts.port or port
    if form == "uri":
        parts = urlsplit(value)
        if parts.scheme in _WITH_HOST and parts.hostname:
            return parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    return None


def _resolve(host: str) -> list[str]:
    address = literal(host)
    if address is not None:
        return [str(address)]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failed:
        raise Unavailable(f"{host} cannot be resolved: {failed}.", code="unresolved") from None
    # A scope such as %eth0 says on which link: no such address is public. Each address comes once.
    return list(dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in found))
