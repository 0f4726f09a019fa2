"""As much of a Cassandra node as its driver needs to learn of another node: version 4 of the native protocol, on a socket."""

import socket
import struct
import uuid

from tests.support.astray import Answering, exactly

_VERSION = 4
_ERROR, _READY, _OPTIONS, _SUPPORTED, _QUERY, _RESULT = 0, 2, 5, 6, 7, 8
_PROTOCOL, _INVALID = 0x000A, 0x2200
_VARCHAR, _UUID, _INET, _SET_OF_TEXT = b"\x00\x0d", b"\x00\x0c", b"\x00\x10", b"\x00\x22\x00\x0d"

Cell = tuple[str, bytes, bytes]


def announces(here: str, other: str) -> Answering:
    """A node at the first address, whose cluster has one more node, at the second. It carries out no statement."""

    def answering(peer: socket.socket) -> None:
        peer.settimeout(10)
        while True:
            version, _, stream, opcode, size = struct.unpack(">BBhBi", exactly(peer, 9))
            body = exactly(peer, size)
            code, answer = _answer(version, opcode, body, here, other)
            peer.sendall(struct.pack(">BBhBi", 0x80 | _VERSION, 0, stream, code, len(answer)) + answer)

    return answering


def _answer(version: int, opcode: int, body: bytes, here: str, other: str) -> tuple[int, bytes]:
    if version != _VERSION:
        return _ERROR, struct.pack(">i", _PROTOCOL) + _string("Invalid or unsupported protocol version")
    if opcode == _OPTIONS:
        supported = {"CQL_VERSION": ["3.4.5"], "COMPRESSION": []}
        lists = (
            _string(name) + struct.pack(">H", len(found)) + b"".join(map(_string, found))
            for name, found in supported.items()
        )
        return _SUPPORTED, struct.pack(">H", len(supported)) + b"".join(lists)
    if opcode != _QUERY:
        return _READY, b""
    (length,) = struct.unpack_from(">i", body)
    return _result(body[4 : 4 + length].decode(), here, other)


def _result(statement: str, here: str, other: str) -> tuple[int, bytes]:
    if "system.local" in statement:
        known = [("key", _VARCHAR, b"local"), ("partitioner", _VARCHAR, b"Murmur3Partitioner")]
        return _RESULT, _rows([*known, *_node(here)])
    if "system.peers " in f"{statement} ":
        return _RESULT, _rows([("peer", _INET, socket.inet_aton(other)), *_node(other)])
    if statement.startswith("SELECT") and "peers_v2" not in statement:
        return _RESULT, _rows([("keyspace_name", _VARCHAR, b"")], 0)
    return _ERROR, struct.pack(">i", _INVALID) + _string("not here")


def _node(address: str) -> list[Cell]:
    tokens = struct.pack(">i", 1) + _bytes(str(sum(address.encode())).encode())
    return [
        ("cluster_name", _VARCHAR, b"test"),
        ("data_center", _VARCHAR, b"dc1"),
        ("rack", _VARCHAR, b"r1"),
        ("release_version", _VARCHAR, b"4.0.0"),
        ("host_id", _UUID, uuid.uuid5(uuid.NAMESPACE_DNS, address).bytes),
        ("schema_version", _UUID, uuid.UUID(int=7).bytes),
        ("rpc_address", _INET, socket.inet_aton(address)),
        ("tokens", _SET_OF_TEXT, tokens),
    ]


def _rows(cells: list[Cell], count: int = 1) -> bytes:
    """The cells so many times."""
    head = struct.pack(">iii", 2, 1, len(cells)) + _string("system") + _string("t")
    columns = b"".join(_string(name) + kind for name, kind, _ in cells)
    values = b"".join(_bytes(value) for *_, value in cells)
    return head + columns + struct.pack(">i", count) + values * count


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value
