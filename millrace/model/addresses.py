"""Which IP addresses the platform may connect to on a tenant's behalf: public ones, and networks that the operator allows.

An IPv4 address inside an IPv6 address is checked on its own."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Special networks of the IANA registries that `ipaddress` calls global in some releases of Python, or in all. Parts of
# 192.0.0.0/24 and 2001::/23 are public, but nobody offers a service there that a tenant could name.
_SPECIAL = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.31.196.0/24"),
    IPv4Network("192.52.193.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv4Network("192.175.48.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("2001:db8::/32"),
    IPv6Network("2002::/16"),
    IPv6Network("2620:4f:8000::/48"),
    IPv6Network("3fff::/20"),
)
# A public address that answers inside a cloud: the wire server of Azure.
_METADATA = (ip_address("168.63.129.16"),)


def literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_permitted(address: Address, allowed: Networks) -> bool:
    """Whether we may connect to it. An address inside another one is checked on its own."""
    if any(address in network for network in allowed if network.version == address.version):
        return True
    inner = _embedded(address)
    if inner is not None:
        return is_permitted(inner, allowed)
    return _is_public(address)


def _embedded(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    if any(address in network for network in _SPECIAL if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved and address not in _METADATA
