"""The gateway: an admitted import's bytes in, stamped chunks in raw-input out. Memory is bounded by the chunks in flight.

Nothing is sent for an import that the controller has not admitted (I2): an Upload cannot be made without one."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Any

from millrace.failpoint import reach
from millrace.formats.cut import CutPiece, Cutter
from millrace.model.chunk import ChunkHeader
from millrace.model.errors import Clash, TooLarge
from millrace.model.imports import Import
from millrace.observe import observe
from millrace.seal.cipher import Seal
from millrace.upload.digest import KnownStart, RunningDigest
from millrace.wire.client import Appended, Appender
from millrace.wire.envelope import checksum, compress, pack_chunk
from millrace.wire.topics import RAW_INPUT, bulk_partitions, chunk_partition, quick_partitions

CHUNKS_IN_FLIGHT = 24
CONFIRM_SECONDS = 150
# How much of a spooled file is cut in one turn of a thread.
CUTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Resume:
    """Where an upload goes on after a break: behind the last chunk that Kafka has confirmed."""

    chunks: int = 0
    rows: int = 0
    plain_bytes: int = 0
    cutter: dict[str, Any] | None = None


def line_end_of(text: bytes) -> str:
    """Of the first line; most files have only one kind."""
    feed, carriage = text.find(b"\n"), text.find(b"\r")
    if carriage < 0 or -1 < feed < carriage:
        return "\n"
    return "\r\n" if feed == carriage + 1 else "\r"


class Upload:
    """One import's bytes on their way. Not thread-safe: one request at a time feeds it."""

    def __init__(
        self,
        imp: Import,
        cutter: Cutter,
        appender: Appender,
        raw_partitions: int,
        is_closed: Callable[[str], bool],
        resume: Resume | None = None,
        seal: Seal | None = None,
        known: KnownStart | None = None,
    ) -> None:
        """`known`: how the file began when it came before, for one that comes from its start again."""
        self._imp = imp
        self._cutter = cutter
        self._appender = appender
        self._bulk = bulk_partitions(raw_partitions)
        self._quick = quick_partitions()
        self._is_closed = is_closed
        self._seal = seal
        self._first: tuple[CutPiece, dict[str, Any] | None] | None = None
        self._pending: deque[tuple[Future[Appended], Resume]] = deque()
        self._sent = resume or Resume()
        self.confirmed = resume or Resume()
        self.written: dict[str, Any] | None = None
        self._rest: Iterator[CutPiece] | None = None
        self.digest = RunningDigest(imp.id, int((self.confirmed.cutter or {}).get("offset", 0)), known)

    @property
    def received(self) -> int:
        return self.digest.length

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.digest.update(piece)
            for cut in self._cutter.feed(piece):
                self._take(cut, self._cutter.resume_point())

    @property
    def sent_chunks(self) -> int:
        return self._sent.chunks

    @property
    def repeated_headers(self) -> int:
        return self._cutter.repeated_headers()

    def finish_with(self, *pieces: bytes) -> Resume | None:
        """Takes the last pieces and begins to finish."""
        self.feed(*pieces)
        return self.finish_some()

    def finish_some(self) -> Resume | None:
        """Sends what is left and waits until Kafka has confirmed every chunk. In turns, because some files can only be cut
        when all of it is here: None means that there is more."""
        self.digest.finish()
        self._rest = iter(self._cutter.finish()) if self._rest is None else self._rest
        for number, cut in enumerate(self._rest, 1):
            self._take(cut, self._cutter.resume_point())
            if number == CUTS_AT_ONCE:
                return None
        if self._first is not None:
            self._send(*self._first, chunk_partition(self._imp.id, 0, self._quick), "quick")
            self._first = None
        while self._pending:
            self._confirm_oldest()
        return self._sent

    def _take(self, cut: CutPiece, resume: dict[str, Any] | None) -> None:
        """Keeps the first chunk until it is known whether it is the only one: a small import takes the quick lane."""
        if self._sent.chunks == 0 and self._first is None:
            self._first = cut, resume
            return
        if self._first is not None:
            first, self._first = self._first, None
            self._send_bulk(*first)
        self._send_bulk(cut, resume)

    def _send_bulk(self, cut: CutPiece, resume: dict[str, Any] | None) -> None:
        self._send(cut, resume, chunk_partition(self._imp.id, self._sent.chunks, self._bulk), "bulk")

    def _send(self, cut: CutPiece, resume: dict[str, Any] | None, partition: int, lane: str) -> None:
        number = self._sent.chunks
        # The last version of the block is for the chunk that shows an atomic import.
        if number >= self._imp.versions - 1:
            raise TooLarge(
                f"The file has more than the {self._imp.versions - 1} chunks reserved for it.", remedy="Split the file."
            )
        if self._is_closed(self._imp.id):
            raise Clash(f"Import {self._imp.id} was stopped.", code="stopped")
        if cut.oversize is None:
            end = line_end_of(cut.body) if self.written is None else self.written.get("line_end")
            layout = None if cut.layout is None else asdict(cut.layout)
            self.written = {"encoding": cut.encoding, "layout": layout, **({"line_end": end} if layout else {})}
        payload = compress(cut.body)
        if self._seal is not None:
            payload = self._seal.close(payload, str(number))
        header = ChunkHeader(
            import_id=self._imp.id,
            number=number,
            version=self._imp.first_version + number,
            definition=self._imp.definition,
            encoding=cut.encoding,
            first_row=cut.first_row,
            first_line=cut.first_line,
            rows=cut.rows,
            plain_bytes=len(cut.body),
            checksum=checksum(payload),
            layout=cut.layout,
            oversize=cut.oversize,
            deletes=self._imp.deletes,
            publish=self._imp.publish,
            key=None if self._seal is None else self._seal.key,
        )
        while len(self._pending) >= CHUNKS_IN_FLIGHT:
            self._confirm_oldest()
        sent = self._appender.append(RAW_INPUT, self._imp.id.encode(), pack_chunk(header, payload), partition)
        self._sent = Resume(number + 1, self._sent.rows + cut.rows, self._sent.plain_bytes + len(cut.body), resume)
        self._pending.append((sent, self._sent))
        observe("chunk_appended", lane=lane)
        observe("bytes_appended", len(cut.body))
        while self._pending and self._pending[0][0].done():
            self._confirm_oldest()

    def _confirm_oldest(self) -> None:
        sent, resume = self._pending.popleft()
        sent.result(CONFIRM_SECONDS)
        reach("after_chunk_produce")
        self.confirmed = resume

    def close(self) -> None:
        self._cutter.close()
