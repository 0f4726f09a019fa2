"""Sends the rows of replays once they are admitted, whoever asked for them.

A replay sends one chunk per original chunk, under the original versions. It can be sent again after a crash: chunks have the
same identity, and what was judged stays judged."""

from base64 import b64decode
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Event

from pyroaring import BitMap64
from sqlalchemy import select

from millrace.api.jobs.rejected_rows import Choice, RejectedRows, chunk_of, only_rows
from millrace.api.sealing import Sealing
from millrace.exchange.definitions import DefinitionStore
from millrace.model.errors import Unavailable
from millrace.model.imports import PROCESSING, REPLAY
from millrace.model.ops import Applied
from millrace.model.ops.rows import ReplayBegun
from millrace.store import tables as t
from millrace.store.engine import ControlStore
from millrace.store.records import find_import
from millrace.wire.client import Appended, Appender
from millrace.wire.envelope import checksum, compress, pack_chunk
from millrace.wire.topics import RAW_INPUT, chunk_partition, quick_partitions

CONFIRM_SECONDS = 150
CHUNKS_IN_FLIGHT = 24
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ReplaySender:
    rejected: RejectedRows
    store: ControlStore
    definitions: DefinitionStore
    sealing: Sealing
    appender: Appender
    _admitted: SimpleQueue[str] = field(default_factory=SimpleQueue, init=False)

    def on_applied(self, applied: list[Applied]) -> None:
        for one in applied:
            if isinstance(one.result, ReplayBegun):
                self._admitted.put(one.result.import_id)

    def run(self, stopping: Event) -> None:
        """Sends what is admitted. Chunks that were sent before, even by another server, are recognised by their identity."""
        wanted = select(t.imports.c.id).where(t.imports.c.kind == REPLAY, t.imports.c.state == PROCESSING)
        for row in self.store.rows(wanted):
            self._admitted.put(row.id)
        while not stopping.is_set():
            with suppress(Empty):
                import_id = self._admitted.get(timeout=LOOK_SECONDS)
                try:
                    self._send_again(import_id)
                except Unavailable:
                    self._admitted.put(import_id)
                    stopping.wait(LOOK_SECONDS)

    def _send_again(self, import_id: str) -> None:
        with self.store.read() as connection:
            imp = find_import(connection, import_id)
            origin = find_import(connection, imp.of) if imp is not None and imp.of else None
        if imp is None or origin is None:
            return
        chosen = BitMap64.deserialize(b64decode(imp.options["rows"]))
        definition = self.definitions.read(imp.definition)
        quick, seal = quick_partitions(), self.sealing.of_import(imp)
        sent: deque[Future[Appended]] = deque()
        for whole_piece in self.rejected.pieces(origin, Choice(), whole=False):
            for piece in only_rows(whole_piece, chosen.__contains__):
                header, body = chunk_of(imp, origin, definition, piece)
                partition = chunk_partition(imp.id, piece.chunk, quick)
                payload = compress(body)
                if seal is not None:
                    payload = seal.close(payload, str(header.number))
                    header = replace(header, checksum=checksum(payload), key=seal.key)
                record = pack_chunk(header, payload)
                sent.append(self.appender.append(RAW_INPUT, imp.id.encode(), record, partition))
                if len(sent) >= CHUNKS_IN_FLIGHT:
                    sent.popleft().result(CONFIRM_SECONDS)
        for future in sent:
            future.result(CONFIRM_SECONDS)
