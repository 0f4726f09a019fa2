"""The rejected rows of one import that are closed, by how they were closed. Each row is closed once.

A claim of an earlier release is one bitmap, which does not say how its rows were closed."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap64

from millrace.model.imports import AMEND, DISCARD, REPLAY

OPEN, AMENDED, REPLAYED, DISCARDED = "open", "amended", "replayed", "discarded"
# Closed before the way was kept.
CLOSED = "closed"
WAYS = (AMENDED, REPLAYED, DISCARDED, CLOSED)
WAY_OF = {AMEND: AMENDED, REPLAY: REPLAYED, DISCARD: DISCARDED}

# No bitmap of an earlier release begins so: these bytes would be its number of containers.
_MARK = b"closed1\n"
_LENGTH_BYTES = 8


def bitmap_of(rows: str) -> BitMap64:
    """The rows that an op names."""
    return BitMap64.deserialize(b64decode(rows))


@dataclass(frozen=True, slots=True)
class ClosedRows:
    by_way: Mapping[str, BitMap64] = field(default_factory=dict)

    @staticmethod
    def read(stored: bytes | None) -> "ClosedRows":
        if not stored:
            return ClosedRows()
        if not stored.startswith(_MARK):
            return ClosedRows({CLOSED: BitMap64.deserialize(stored)})
        found, at = {}, len(_MARK)
        for way in WAYS:
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(stored[at:start], "little")
            if at > start:
                found[way] = BitMap64.deserialize(stored[start:at])
        return ClosedRows(found)

    def to_bytes(self) -> bytes:
        parts = [self.by_way[way].serialize() if self.by_way.get(way) else b"" for way in WAYS]
        return _MARK + b"".join(len(part).to_bytes(_LENGTH_BYTES, "little") + part for part in parts)

    @property
    def rows(self) -> BitMap64:
        """All that are closed."""
        return BitMap64().union(*self.by_way.values())

    def of(self, way: str) -> BitMap64:
        return self.by_way.get(way, BitMap64())

    def closing(self, way: str, rows: BitMap64) -> "ClosedRows":
        return ClosedRows({**self.by_way, way: self.of(way) | rows})

    def opening(self, rows: BitMap64) -> "ClosedRows":
        """The rows are open again, however they were closed."""
        return ClosedRows({way: closed - rows for way, closed in self.by_way.items()})

    def counts(self, rejected: int) -> dict[str, int]:
        """By state, of so many rejected rows. `closed` only if an earlier release closed some."""
        known = {way: len(self.of(way)) for way in WAYS}
        counts = {OPEN: max(rejected - sum(known.values()), 0), **known}
        return counts if counts[CLOSED] else {way: count for way, count in counts.items() if way != CLOSED}
