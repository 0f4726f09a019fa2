"""Ops that carry a MAC: who has no key can neither write an op, nor alter one, nor put a copy of one into the log.

The MAC is the last field of a record. It covers the topic, the partition, the number of the key, the signer, the record's
place among the signer's records, and every byte of the record before it: kind, id, tenant, subject and body. An older
reader ignores the field."""

import hmac
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from millrace.wire.client import Appended, Appender, Record

KEY_BYTES = 32
_FIELD = re.compile(rb',"mac":"(\d{4})\.([0-9a-f]{16})\.(\d{1,18})\.([0-9a-f]{64})"\}')
_FIELD_BYTES = 128
_CONTEXT = "millrace op 1"


@dataclass(frozen=True, slots=True)
class OpKey:
    """A key, and where in the log of which cluster its time began: the offset from which on the partitions hold ops that
    are signed by it, until the next key's time begins.

    `accepts_earlier`: an earlier key was lost, and the operator accepted what the log held when this one was made."""

    number: int
    secret: bytes = field(repr=False)
    cluster: str
    since: Mapping[int, int]
    accepts_earlier: bool = False

    @classmethod
    def new(cls, number: int, cluster: str, since: Mapping[int, int], *, accepts_earlier: bool = False) -> "OpKey":
        return cls(number, secrets.token_bytes(KEY_BYTES), cluster, since, accepts_earlier)

    def mac(self, topic: str, partition: int, signer: str, count: int, body: bytes) -> str:
        said = f"{_CONTEXT}\n{topic}\n{partition}\n{self.number}\n{signer}\n{count}\n".encode()
        digest = hmac.new(self.secret, said, "sha256")
        digest.update(body)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """By whom a record was signed, and its place among the records that this signer wrote to the partition."""

    signer: str
    count: int


class Forged(Exception):
    """A record of the table log that no server of this platform wrote there."""


class OpSigner:
    """Appends as an `Appender` does, with a MAC. Each server process is a signer of its own."""

    def __init__(self, appender: Appender, key: OpKey) -> None:
        self._appender = appender
        self._key = key
        self._signer = secrets.token_hex(8)
        self._counts: dict[int, int] = {}
        self._order = threading.Lock()

    def append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended]":
        # Numbered and appended under one lock: a record that came behind its successor would be taken for a copy.
        with self._order:
            count, signed = self._signed(topic, value, partition)
            appended = self._appender.append(topic, key, signed, partition)
            self._counts[partition] = count
        return appended

    def try_append(self, topic: str, key: bytes, value: bytes, partition: int) -> "Future[Appended] | None":
        """The same without waiting. None: the appender is full, or another thread appends just now."""
        if not self._order.acquire(blocking=False):
            return None
        try:
            count, signed = self._signed(topic, value, partition)
            appended = self._appender.try_append(topic, key, signed, partition)
            if appended is not None:
                self._counts[partition] = count
        finally:
            self._order.release()
        return appended

    def _signed(self, topic: str, value: bytes, partition: int) -> tuple[int, bytes]:
        count = self._counts.get(partition, 0) + 1
        return count, sign(self._key, topic, partition, Mark(self._signer, count), value)


def sign(key: OpKey, topic: str, partition: int, mark: Mark, value: bytes) -> bytes:
    """`value` is a JSON object."""
    body = value[:-1]
    mac = key.mac(topic, partition, mark.signer, mark.count, body)
    return body + f',"mac":"{key.number:04d}.{mark.signer}.{mark.count}.{mac}"}}'.encode()


def key_number(value: bytes) -> int | None:
    """The number of the key that a record names, if it is signed at all."""
    found = _mac_in(value)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class OpTrust:
    """Which records are ops of this platform. `cluster`: the one whose log is read."""

    keys: Sequence[OpKey]
    cluster: str

    def check(self, record: Record) -> Mark | None:
        """Who signed the record; None if nobody can say, but it is older than the first key or was accepted by the operator.
        Raises Forged for what is no op of ours."""
        if record.offset < self._start(0, record.partition):
            return None
        try:
            return self._checked(record)
        except Forged:
            if record.offset < self._accepted(record.partition):
                return None
            raise

    def _checked(self, record: Record) -> Mark:
        found = _mac_in(record.value)
        if found is None:
            raise Forged("it has no MAC")
        number, signer, count, mac = (part.decode() for part in found.groups())
        position = int(number) - 1
        if not 0 <= position < len(self.keys):
            raise Forged(f"it names key {number}, which is not there")
        body = record.value[: len(record.value) - len(found[0])]
        expected = self.keys[position].mac(record.topic, record.partition, signer, int(count), body)
        if not hmac.compare_digest(expected, mac):
            raise Forged("its MAC is wrong")
        if position + 1 < len(self.keys) and record.offset >= self._start(position + 1, record.partition):
            raise Forged(f"its key {number} was replaced before")
        return Mark(signer, int(count))

    def _accepted(self, partition: int) -> int:
        """Up to here the operator accepted the log as it was."""
        accepting = [at for at, key in enumerate(self.keys) if key.accepts_earlier]
        return self._start(accepting[-1], partition) if accepting else 0

    def _start(self, position: int, partition: int) -> int:
        """Where the key's time begins. Offsets mean nothing in another cluster: there, only the newest key counts."""
        if position >= len(self.keys) or self.keys[position].cluster != self.cluster:
            return 0
        return self.keys[position].since.get(partition, 0)


def _mac_in(value: bytes) -> "re.Match[bytes] | None":
    return _FIELD.fullmatch(value[_field_start(value) :])


def _field_start(value: bytes) -> int:
    """Where the last field would begin."""
    return max(0, value.rfind(b',"mac":"', max(0, len(value) - _FIELD_BYTES)))
