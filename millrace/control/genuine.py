"""Tells the platform's own ops from records that somebody else put into the table log, and from copies of its own.

What is not ours is passed over and reported: it must neither be applied nor keep the ops behind it from being applied."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from millrace.observe import observe
from millrace.store import tables as t
from millrace.store.engine import upsert
from millrace.wire.client import Record
from millrace.wire.signing import Forged, Mark, OpTrust
from millrace.wire.topics import TABLE_OPS

# So long does health name a record that was passed over.
TOLD_SECONDS = 3600.0
# Somebody who writes many of them must not fill the log file.
MOST_NAMED = 3


@dataclass(slots=True)
class Sifted:
    """Of some records: those that are ours, what is wrong with the others, and the new counts of the signers."""

    ours: list[Record] = field(default_factory=list)
    forged: list[str] = field(default_factory=list)
    counts: dict[tuple[str, int], int] = field(default_factory=dict)

    def write(self, connection: Connection) -> None:
        """In the transaction that stores what became of the ops."""
        if self.counts:
            rows = [{"signer": who, "partition": where, "taken": count} for (who, where), count in self.counts.items()]
            upsert(connection, t.signers, rows)


class GenuineOps:
    """The controller's thread sifts; health asks from others."""

    def __init__(self, trust: OpTrust) -> None:
        self._trust = trust
        self._counts: dict[tuple[str, int], int] = {}
        self._passed_over = 0
        self._last = ""
        self._last_at = 0.0
        self._telling = threading.Lock()

    def load(self, connection: Connection) -> None:
        rows = connection.execute(select(t.signers))
        self._counts = {(row.signer, row.partition): row.taken for row in rows}

    def sift(self, records: Iterable[Record]) -> Sifted:
        sifted = Sifted()
        for record in records:
            try:
                mark = self._trust.check(record)
                if mark is not None:
                    self._count(sifted, mark, record.partition)
                sifted.ours.append(record)
            except Forged as reason:
                sifted.forged.append(f"{TABLE_OPS}/{record.partition}/{record.offset}: {reason}")
        return sifted

    def _count(self, sifted: Sifted, mark: Mark, partition: int) -> None:
        place = mark.signer, partition
        if mark.count <= sifted.counts.get(place, self._counts.get(place, 0)):
            raise Forged("it is a copy of an earlier record")
        sifted.counts[place] = mark.count

    def taken(self, sifted: Sifted) -> None:
        """What became of the records is stored."""
        self._counts |= sifted.counts
        if not sifted.forged:
            return
        named = "; ".join(sifted.forged[:MOST_NAMED])
        observe("trouble", len(sifted.forged), kind="forged_op", error=f"{len(sifted.forged)} passed over: {named}")
        with self._telling:
            self._passed_over += len(sifted.forged)
            self._last, self._last_at = sifted.forged[-1], time.monotonic()

    def health(self) -> str:
        """`ok`, or what was passed over within the last hour."""
        with self._telling:
            if not self._passed_over or time.monotonic() - self._last_at > TOLD_SECONDS:
                return "ok"
            return (
                f"{self._passed_over} records of the table log were not written by this platform and were passed over. "
                f"The last one is {self._last}. Find out who can write to this topic."
            )
