"""As much of a Kafka broker as its client needs to learn of other brokers."""

import socket
import ssl
import struct

from millrace.wire.external_frames import API_VERSIONS, FIND_COORDINATOR, KNOWN, METADATA
from tests.support.astray import Answering, exactly


def advertises(host: str, port: int, tls: ssl.SSLContext | None = None) -> Answering:
    """A Kafka broker whose cluster, and whose coordinator, is at that address."""

    def answering(plain: socket.socket) -> None:
        plain.settimeout(5)
        with tls.wrap_socket(plain, server_side=True) if tls is not None else plain as peer:
            while True:
                (size,) = struct.unpack(">i", exactly(peer, 4))
                request = exactly(peer, size)
                api, version, number = struct.unpack(">hhi", request[:8])
                body = struct.pack(">i", number) + _kafka_answer(api, version, host, port)
                peer.sendall(struct.pack(">i", len(body)) + body)

    return answering


def _kafka_answer(api: int, version: int, host: str, port: int) -> bytes:
    broker = struct.pack(f">ih{len(host)}si", 1, len(host), host.encode(), port)
    if api == API_VERSIONS:
        # More versions than anybody knows.
        listed = b"".join(struct.pack(">hhh", key, 0, 30) + b"\0" for key in (*KNOWN, 60, 71, 72))
        return struct.pack(">hB", 0, len(KNOWN) + 4) + listed + struct.pack(">i", 0) + b"\0"
    if api == METADATA:
        assert version == KNOWN[METADATA]
        return struct.pack(">ii", 0, 1) + broker + struct.pack(">hhiii", -1, -1, 1, 0, 0)
    if api == FIND_COORDINATOR:
        return struct.pack(">ihh", 0, 0, -1) + broker
    raise OSError(f"nobody expected request {api}")
