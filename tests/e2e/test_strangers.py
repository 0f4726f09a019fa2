"""What another user of the machine gets from Spark's ports, which everybody on the machine can reach."""

import socket
import struct

import psutil
import pytest

from tests.e2e.conftest import SPARK_SECRET
from tests.support.platform import RunningPlatform

RPC_REQUEST, OPEN_BLOCKS = 3, 0


def _open_blocks() -> bytes:
    """The message by which Spark's executors ask for a block, without any authentication before it."""

    def text(value: bytes) -> bytes:
        return struct.pack(">I", len(value)) + value

    message = bytes([OPEN_BLOCKS]) + text(b"app") + text(b"1") + struct.pack(">I", 1) + text(b"broadcast_0_piece0")
    return struct.pack(">QBQI", 21 + len(message), RPC_REQUEST, 1, len(message)) + message


def _answer(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(2)
        connection.sendall(_open_blocks())
        try:
            return connection.recv(4096).decode(errors="replace")
        except TimeoutError:
            return ""


def _ports(process: psutil.Process) -> list[int]:
    return [one.laddr.port for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]


def test_spark_answers_nobody_who_does_not_know_its_secret(platform: RunningPlatform) -> None:
    answers = [_answer(port) for port in _ports(platform.part("jvm"))]
    # The gateway of the driver waits for its token and says nothing.
    refusals = [answer for answer in answers if answer]
    assert len(refusals) >= 2, answers
    assert all("Expected SaslMessage" in refusal for refusal in refusals), refusals


@pytest.mark.parametrize("part", ["jvm", "data-plane"])
def test_secret_options_of_spark_are_in_no_arguments(platform: RunningPlatform, part: str) -> None:
    words = " ".join(platform.part(part).cmdline())
    assert SPARK_SECRET not in words
