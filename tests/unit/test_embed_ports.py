"""Ports that servers may take."""

import socket

from millrace.embed.ports import LOOPBACK, accepts, free_ports, is_free


def test_ports_are_distinct_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(map(is_free, ports))


def test_a_listening_server_is_seen() -> None:
    (port,) = free_ports(1)
    assert not accepts(port)
    with socket.create_server((LOOPBACK, port)):
        assert accepts(port)
        assert not is_free(port)
    assert is_free(port)
