"""The journal of a topic, in a compacted topic beside it: the state of the table, the versions of its keys or chunks, and the
schemas of its values. It is written in the transaction that writes the rows, so the two cannot differ.

A process that opens the journal reads it to its end. Later it reads only what is new."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import orjson
import zstandard
from fastavro import parse_schema

from millrace.sink.versions import Versions, Written, joined
from millrace.wire.external_kafka import OutwardCluster
from millrace.wire.external_producer import OutRecord

SUFFIX = ".millrace"
SETTINGS = {"cleanup.policy": "compact", "max.message.bytes": str(8 << 20)}
ENTRY_ROWS = 30_000
MOST_KEYS = 2_000_000
_STATE, _KEYS, _CHUNKS, _SCHEMA = b"state", b"keys/", b"chunks/", b"schema/"


@dataclass(frozen=True, slots=True)
class JournalState:
    """Valid entries are numbered from `first_entry` up to, but not including, `next_entry`."""

    table: str
    definition: str
    generation: int
    revision: int
    key: tuple[str, ...]
    floor: int = 0
    horizon: int = 0
    first_entry: int = 0
    next_entry: int = 0


class Journal:
    def __init__(self, cluster: OutwardCluster, topic: str) -> None:
        self.topic = topic + SUFFIX
        self.state: JournalState | None = None
        self.versions = Versions()
        self.chunks: set[str] = set()
        self.schemas: dict[str, Any] = {}
        self._cluster = cluster
        self._position = 0

    def is_behind(self) -> bool:
        return self._cluster.ends(self.topic, committed=False)[0] != self._position

    def catch_up(self) -> None:
        end = self._cluster.settle(self.topic)[0]
        for record in self._cluster.read(self.topic, {0: self._position} if self._position else None):
            self._take(record.key or b"", record.value)
        self._position = end
        if self.state is not None:
            self.versions.horizon = self.state.horizon
            self.versions.raise_floor(self.state.floor)

    def _take(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            return
        if key == _STATE:
            state = orjson.loads(value)
            self.state = JournalState(**{**state, "key": tuple(state["key"])})
        elif key.startswith(_KEYS):
            self.versions.remember(Written.from_bytes(zstandard.decompress(value)))
        elif key.startswith(_CHUNKS):
            self.chunks.update(orjson.loads(zstandard.decompress(value)))
        elif key.startswith(_SCHEMA):
            self.schemas[key.removeprefix(_SCHEMA).decode()] = parse_schema(orjson.loads(value))

    def schema(self, schema_id: str, schema: dict[str, Any]) -> Iterator[OutRecord]:
        if schema_id not in self.schemas:
            self.schemas[schema_id] = parse_schema(schema)
            yield self._record(_SCHEMA + schema_id.encode(), orjson.dumps(schema))

    def entries(self, state: JournalState, written: list[Written], chunks: list[str]) -> Iterator[OutRecord]:
        """Records for what was written, and for the new state. If there are too many keys, the lowest versions are forgotten
        and the rest replaces all former entries."""
        first = state.first_entry
        remembered = joined(written)
        if len(self.versions) > MOST_KEYS:
            remembered = self.versions.forget(MOST_KEYS // 2) or remembered
            first = state.next_entry
            for old in range(state.first_entry, state.next_entry):
                yield self._record(_KEYS + b"%012d" % old, None)
        number = state.next_entry
        for begin in range(0, len(remembered), ENTRY_ROWS):
            part = remembered.taken(np.arange(begin, min(begin + ENTRY_ROWS, len(remembered))))
            yield self._record(_KEYS + b"%012d" % number, zstandard.compress(part.to_bytes()))
            number += 1
        if chunks:
            self.chunks.update(chunks)
            listed = orjson.dumps(sorted(chunks))
            name = _CHUNKS + hashlib.blake2b(listed, digest_size=12).hexdigest().encode()
            yield self._record(name, zstandard.compress(listed))
        self.state = replace(state, horizon=self.versions.horizon, first_entry=first, next_entry=number)
        yield self._record(_STATE, orjson.dumps(asdict(self.state)))

    def seen(self) -> None:
        """Readers of committed records see what was just written here."""
        self._position = self._cluster.settle(self.topic)[0]

    def _record(self, key: bytes, value: bytes | None) -> OutRecord:
        return OutRecord(self.topic, key, value, partition=0)
