"""Answers of somebody else's Kafka in which brokers' addresses stand: bytes in, addresses or rewritten bytes out.

A client connects to whatever its cluster advertises. So it may ask only for what is listed in `KNOWN`, in versions that we
can read: of those, only Metadata and FindCoordinator name addresses. Later versions of Produce and Fetch name some, too."""

import struct
from collections.abc import Callable, Iterator

API_VERSIONS, METADATA, FIND_COORDINATOR = 18, 3, 10
REWRITTEN = frozenset({API_VERSIONS, METADATA, FIND_COORDINATOR})
# The highest version of each request that is passed on.
KNOWN = {
    0: 8,  # Produce
    1: 11,  # Fetch
    2: 7,  # ListOffsets
    METADATA: 8,
    8: 7,  # OffsetCommit
    9: 5,  # OffsetFetch
    FIND_COORDINATOR: 2,
    11: 5,  # JoinGroup
    12: 3,  # Heartbeat
    13: 3,  # LeaveGroup
    14: 3,  # SyncGroup
    17: 1,  # SaslHandshake
    API_VERSIONS: 3,
    19: 7,  # CreateTopics
    20: 6,  # DeleteTopics
    22: 5,  # InitProducerId
    23: 3,  # OffsetForLeaderEpoch
    24: 3,  # AddPartitionsToTxn
    26: 3,  # EndTxn
    36: 2,  # SaslAuthenticate
}
_MOST_BROKERS = 1000

Place = tuple[str, int]


class NotKafka(OSError):
    """The bytes are not what Kafka's protocol says."""


class AnswerReader:
    """Goes through an answer from its beginning."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def number(self, form: str) -> int:
        try:
            (found,) = struct.unpack_from(f">{form}", self.body, self.at)
        except struct.error:
            raise NotKafka("An answer is too short.") from None
        self.at += struct.calcsize(f">{form}")
        return int(found)

    def text(self) -> bytes:
        """Empty also where it is null."""
        length = max(0, self.number("h"))
        self.at += length
        if self.at > len(self.body):
            raise NotKafka("An answer is too short.")
        return self.body[self.at - length : self.at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise NotKafka("A number is too long.")

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.at += self.varint()


def capped(version: int, body: bytes) -> bytes:
    """An answer to ApiVersions that offers what is known, and nothing else. After an error the client asks again."""
    reading = AnswerReader(body)
    error = reading.number("h")
    if error:
        return body
    is_compact = version >= 3
    count = reading.varint() - 1 if is_compact else reading.number("i")
    kept = []
    for _ in range(count):
        key, least, most = (reading.number("h") for _ in range(3))
        if is_compact:
            reading.skip_tags()
        if key in KNOWN and least <= KNOWN[key]:
            kept.append(struct.pack(">hhh", key, least, min(most, KNOWN[key])) + (b"\0" if is_compact else b""))
    # There are fewer than 127, so the length is one byte.
    head = struct.pack(">hB", error, len(kept) + 1) if is_compact else struct.pack(">hi", error, len(kept))
    return head + b"".join(kept) + body[reading.at :]


def places_in(api: int, version: int, body: bytes) -> list[Place]:
    """The brokers that an answer names."""
    found: list[Place] = []

    def note(place: Place) -> Place:
        found.append(place)
        return place

    rewritten(api, version, body, note)
    return found


def rewritten(api: int, version: int, body: bytes, placed: Callable[[Place], Place]) -> bytes:
    """The same answer with other addresses in it."""
    reading = AnswerReader(body)
    if version >= (3 if api == METADATA else 1):
        reading.number("i")
    parts = _brokers(reading, version, placed) if api == METADATA else _coordinator(reading, version, placed)
    return b"".join(parts) + body[reading.at :]


def _brokers(reading: AnswerReader, version: int, placed: Callable[[Place], Place]) -> Iterator[bytes]:
    count = reading.number("i")
    if not 0 <= count <= _MOST_BROKERS:
        raise NotKafka(f"A cluster of {count} brokers is not supported.")
    yield reading.body[: reading.at]
    for _ in range(count):
        yield _broker(reading, placed)
        if version >= 1:
            begin = reading.at
            reading.text()
            yield reading.body[begin : reading.at]


def _coordinator(reading: AnswerReader, version: int, placed: Callable[[Place], Place]) -> Iterator[bytes]:
    error = reading.number("h")
    if version >= 1:
        reading.text()
    yield reading.body[: reading.at]
    if error:
        # Nobody is named; whatever stands here is not passed on.
        reading.number("i")
        reading.text()
        reading.number("i")
        yield struct.pack(">ihi", -1, 0, -1)
    else:
        yield _broker(reading, placed)


def _broker(reading: AnswerReader, placed: Callable[[Place], Place]) -> bytes:
    node, host, port = reading.number("i"), reading.text().decode("ascii", "replace"), reading.number("i")
    if not host or not 0 < port < 1 << 16:
        raise NotKafka(f"{host!r:.100}:{port} is no broker's address.")
    host, port = placed((host, port))
    name = host.encode()
    return struct.pack(f">ih{len(name)}si", node, len(name), name, port)
