"""Where a tenant may have us connect: hosts in disguise, addresses inside addresses, names that change their mind."""

import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from millrace.model.addresses import is_permitted
from millrace.model.errors import Invalid, Unavailable
from millrace.outbound.addresses import Judged, Target, parse_target

PUBLIC = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]
SPECIAL = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::127.0.0.1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1",
    "64:ff9b:1::1",
    # What `ipaddress` calls global, depending on Python's release.
    "192.0.0.8", "192.0.0.9", "192.0.0.192", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "2001:2::1",
    "2001:4:112::1", "2001:20::1", "2001:30::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "5f00::1",
]  # fmt: skip
HIDDEN = [
    "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b::c000:c0", "2002:c000:c0::1", "::ffff:192.0.0.192", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted(address: str) -> None:
    assert is_permitted(ip_address(address), ())


@pytest.mark.parametrize("address", SPECIAL + HIDDEN)
def test_special_addresses_are_not_however_they_are_written(address: str) -> None:
    assert not is_permitted(ip_address(address), ())


@pytest.mark.parametrize("address", ["::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_inside_another_is_public(address: str) -> None:
    assert is_permitted(ip_address(address), ())


def test_the_operator_allows_a_network_and_nothing_beside_it() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("fd00::/64"))
    assert is_permitted(ip_address("10.1.2.3"), allowed)
    assert is_permitted(ip_address("::ffff:10.1.2.3"), allowed)
    assert is_permitted(ip_address("fd00::5"), allowed)
    assert not is_permitted(ip_address("10.2.0.1"), allowed)
    assert not is_permitted(ip_address("169.254.169.254"), allowed)


def test_a_url_is_taken_apart() -> None:
    assert parse_target("https://hooks.example.org/in?a=b") == Target("https", "hooks.example.org", 443, "/in?a=b")
    assert parse_target("http://8.8.8.8:8080") == Target("http", "8.8.8.8", 8080, "/")
    assert parse_target("https://[2606:4700::1111]:8443/x") == Target("https", "2606:4700::1111", 8443, "/x")
    assert parse_target("https://[2606:4700::1111]:8443/x").authority == "[2606:4700::1111]:8443"
    assert parse_target("https://example.org:443/x").authority == "example.org"
    assert parse_target("http://EXAMPLE.org:0443/x#part") == Target("http", "example.org", 443, "/x")


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org/", "file:///etc/passwd", "gopher://example.org/", "http://", "https:///x",
        "http://user:password@example.org/", "http://example.org@127.0.0.1/", "http://exa mple.org/",
        "http://example.org/\r\nHost: other", "http://example.org/a b", "http://example.org\\@127.0.0.1/",
        "http://exämple.org/", "http://１２７.0.0.1/", "http://example.org:99999/", "http://example.org:x/",
        "http://[::1%25lo]/", "http://[fe80::1%eth0]/", "http://[nonsense]/", "http://-x.org/", "http://a/" + "x" * 2000,
        # Numbers that resolvers would read as 127.0.0.1.
        "http://2130706433/", "http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://0x7f000001/", "http://127.1/",
        "http://127.0.0.1./", "http://1.2.3.4.5/", "http://017700000001/",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_target(url)
    assert refused.value.code == "bad_url"
    assert refused.value.remedy


def answers(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    def lookup(host: str, port: Any, **_more: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def permitted(url: str, *allowed: str) -> list[str]:
    networks = [ip_network(each) for each in allowed]
    return Judged(tuple(networks))(parse_target(url).host)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "fe80::1%2", "::ffff:192.168.0.1"])
def test_a_name_is_judged_by_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    answers(monkeypatch, address)
    with pytest.raises(Unavailable) as refused:
        permitted("https://innocent.example.org/")
    private = str(refused.value), refused.value.code, refused.value.remedy
    assert address not in private[0]

    def nobody(*_args: Any, **_more: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # A name of the platform's own network reads like one that nobody knows.
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(Unavailable) as unknown:
        permitted("https://innocent.example.org/")
    assert (str(unknown.value), unknown.value.code, unknown.value.remedy) == private


def test_of_several_addresses_only_permitted_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "10.0.0.1", "93.184.216.34", "::1")
    assert permitted("https://mixed.example.org/") == ["93.184.216.34"]
    assert permitted("https://mixed.example.org/", "10.0.0.0/8") == ["10.0.0.1", "93.184.216.34"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://localhost/"]
)
def test_loopback_by_any_name_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        permitted(url)
    assert refused.value.code == "private_target"


def test_a_name_that_nobody_knows_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_args: Any, **_more: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(Unavailable, match=r"no\.example\.org"):
        permitted("https://no.example.org/")
